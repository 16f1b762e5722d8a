"""What the cases of Spark share: a session, queries, data, and a floor."""
