"""What requests say of the session they belong to: headers, hints, router tokens."""
