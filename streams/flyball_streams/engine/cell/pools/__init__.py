"""Machines of the cell's pools: bought for work that finds no room, and returned when nothing runs on them."""
