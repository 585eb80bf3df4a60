"""The only room that changes the world: a plan in, calls to a platform out, a journal beside it."""
