"""Topics, producer, consumer, followers of compacted topics, fenced writers, leader election, admin."""
