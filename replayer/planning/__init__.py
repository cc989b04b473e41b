"""What a replay will send and when: trees, calls, what each waits for; decided before anything is sent."""
