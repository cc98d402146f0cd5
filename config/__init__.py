"""Every configuration key, declared once: its name, type, default, check and documentation."""
