"""One request over HTTP, with the times of its parts: on plain sockets, or with aiohttp."""
