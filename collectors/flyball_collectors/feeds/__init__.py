"""Grid and price feeds: curves of carbon intensity, electricity and spot prices."""

from flyball_collectors.feeds.base import Feed as Feed, FeedError as FeedError
from flyball_collectors.feeds.run import FeedReport as FeedReport, fetch_once as fetch_once, run_feeds as run_feeds
from flyball_collectors.feeds.sources import Source as Source, open_feeds as open_feeds
