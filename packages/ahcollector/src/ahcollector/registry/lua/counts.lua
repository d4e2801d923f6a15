-- ARGV: prefix. Returns how many agents there are, how many of them pending, how many revoked.
return {
  redis.call('SCARD', key('all')), redis.call('SCARD', key('pend')), redis.call('ZCARD', key('rev')),
}
