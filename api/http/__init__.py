"""HTTP as a gateway needs it: the protocol class, bodies, authentication, the request handler."""
