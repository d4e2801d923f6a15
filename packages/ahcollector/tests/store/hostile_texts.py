"""Ids and values that would like to be a query, or a part of one."""

HOSTILE = [
    'acme"} or {company_id="bolt',
    'acme",company_id=~".+',
    "acme\\",
    'acme\\"',
    "acme\n",
    "acme\r\n\t",
    "acme\x00\x01\x02\x7f\x85\u2028",
    "'acme'",
    "`acme`",
    "{{acme}}",
    "acme} # comment",
    ".*",
    ".+",
    "$1",
    "%22",
    "é\u4e2d\U0001f600",
    "\u202eemca",
    " acme",
    "acme",
    "ACME",
]
