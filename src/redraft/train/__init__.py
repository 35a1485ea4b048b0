"""Training: SCOPE's post-training, its controls and ablations, and the small model of the demonstration.

recipes     scope, mdm and xdlm in one-line notation        scope, xdlm, corrupt   their pure losses
data        streams of packed examples, exact to resume     settings, loop         the run
checkpoint  atomic, checked, the last few                   plan, watch            before it and while it lasts
"""
