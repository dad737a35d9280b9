"""What every process of Redbatch needs to be one: settings, logs, an admin port, a listener, tracing."""
