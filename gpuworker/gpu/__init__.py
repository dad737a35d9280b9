"""Which GPU an engine uses, and when: devices, leases, and sharing by turns."""
