"""Many runs for one answer: the load that still meets a goal, and one way against another."""
