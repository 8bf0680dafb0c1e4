"""The one producer and the one consumer loop of every asyncio node."""
