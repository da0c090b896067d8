"""`llm-trace probe`: a streamed request from outside, and what lies between client and server.

`target` says what is asked, `wire` sends it and stamps what arrives, `reading` finds the tokens and
the server's own numbers in it, `pace` tells whether a proxy lumped them, `page` shows it.
"""
