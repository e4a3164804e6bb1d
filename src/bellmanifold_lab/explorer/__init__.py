"""Interactive exploration of a problem: a picture with a pie per state, updated with every observation.

`session` holds the data and answers messages with views, plain dictionaries; `board` makes the drawing, which does not
change. `explore.js` draws both and sends messages. There are two transports: `notebook`, a widget in a notebook, and
`server`, a page on this machine.
"""
