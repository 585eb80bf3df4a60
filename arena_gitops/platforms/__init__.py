"""Ports and adapters to where work is recorded and run. The only room that speaks HTTP."""
