"""The laboratory: experiments at scale, and pages to look at."""
