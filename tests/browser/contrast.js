// Returns the smallest contrast of a text and its background, by WCAG's formula.
(() => {
  const parse = (colour) => (colour.match(/[\d.]+/g) || []).map(Number);
  const luminance = (colour) => {
    const [red, green, blue] = parse(colour).slice(0, 3).map((each) => each / 255)
      .map((each) => (each <= 0.04045 ? each / 12.92 : ((each + 0.055) / 1.055) ** 2.4));
    return 0.2126 * red + 0.7152 * green + 0.0722 * blue;
  };
  const background = (element) => {
    const colour = getComputedStyle(element).backgroundColor;
    return parse(colour)[3] === 0 && element.parentElement ? background(element.parentElement) : colour;
  };
  const contrasts = [...document.querySelectorAll("h1, h2, header a, #status, caption, th, td")].map((element) => {
    const [one, other] = [getComputedStyle(element).color, background(element)].map(luminance);
    return (Math.max(one, other) + 0.05) / (Math.min(one, other) + 0.05);
  });
  return Math.min(...contrasts);
})()
