// Starts Swagger UI. A file of its own, because the page's policy refuses scripts inside of pages.
SwaggerUIBundle({
  dom_id: "#swagger-ui",
  url: document.getElementById("swagger-ui").dataset.openapi,
  deepLinking: true,
  defaultModelsExpandDepth: 0,
  displayRequestDuration: true,
  tryItOutEnabled: true,
  validatorUrl: null, // it would send the description to another host
});
