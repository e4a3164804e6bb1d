"""Exploring a problem by hand: a picture with a pie per state, and the pies move with every observation.

`session` holds the data and answers messages with views, plain dictionaries; `board` is the drawing, which does not
change. `explore.js` draws both and sends messages. Two small transports bring it to people: `notebook` as a widget in a
notebook, `server` as a page on this machine.
"""
