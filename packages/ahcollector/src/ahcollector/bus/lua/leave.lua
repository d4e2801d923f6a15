-- Tells that a worker is gone. ARGV: prefix, worker.
redis.call('ZREM', prefix .. 'bus:workers', ARGV[2])
redis.call('HDEL', prefix .. 'bus:wants', ARGV[2])
return 1
