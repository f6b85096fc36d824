"""What elements a page has."""

from html.parser import HTMLParser


class Elements(HTMLParser):
    """Collects the elements of a page with their attributes."""

    def __init__(self, text):
        super().__init__()
        self.found = []
        self.feed(text)

    def handle_starttag(self, tag, attrs):
        self.found.append((tag, dict(attrs)))

    def of(self, *tags):
        return [attributes for tag, attributes in self.found if tag in tags]
