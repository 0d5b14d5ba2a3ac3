"""The router, room by room, and both lanes of it as one."""
