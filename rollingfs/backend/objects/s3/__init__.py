"""S3: requests through obstore, or through the botocore client of s3fs for what obstore cannot do."""
