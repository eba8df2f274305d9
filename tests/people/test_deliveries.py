"""Being told: alerts through Apprise and webhooks, against a real server."""

import hmac
import json
import math

import pytest

from tests.people.conftest import need
from tests.sites import Site
from tests.worlds import MONDAY
from tidings.errors import UsageError
from tidings.fetch import Fetcher, FetchSettings
from tidings.people import alerts
from tidings.people.deliveries import BATCH_S, GIVE_UP_S, SHOWN_S, Deliveries
from tidings.store import notices
from tidings.store.people_rows import Rule, Settings
from tidings.web.api.webhook import event

HOUR_S = 3600.0


@pytest.fixture
def there():
    with Site() as receiver:
        yield receiver


class Office:
    """``office.opens()`` is a process that tells what is to be told now, and is gone; ``goes_on()`` is the same once more."""

    def __init__(self, town, there):
        self.town, self.there = town, there
        town.ann.follows("a")
        town.posted("a", 1)

    def wants(self, person, **settings):
        self.town.wait(self.town.people.save_settings(person.user, Settings(**settings)))

    def opens(self, *, allow_private=True):
        """What came of it to the other server."""
        self.fetcher = Fetcher(FetchSettings(allow_private=allow_private), self.town.clock)
        self.deliveries = Deliveries(self.town.store, self.fetcher, self.town.clock, event)
        return self.goes_on()

    def goes_on(self):
        del self.there.posted[:]

        async def tell():
            async with self.fetcher:
                await self.deliveries.round()

        self.town.wait(tell())
        return list(self.there.posted)

    def alerted(self):
        return [json.loads(posted.body)["message"] for posted in self.opens()]


@pytest.fixture
def office(town, there):
    return Office(town, there)


@pytest.fixture
def alarm(office, town, there):
    """Ann wants to be alerted of herons."""
    need("apprise", "alerts")
    town.ann.save_rule(Rule(name="birds", action="alert", words="heron"))
    office.wants(town.ann, alert_urls=(f"json://{there.host}/ann",))
    return office


def test_an_alert_names_entry_feed_rule_and_address_and_is_sent_once(alarm, town):
    town.posted("a", 2, text="a heron!")
    town.posted("a", 3, text="a duck")
    (message,) = alarm.alerted()
    assert message == "Post 2\nhttps://a.example/feed (birds)\nhttps://a.example/2"
    assert alarm.alerted() == []


def test_the_first_document_of_a_feed_is_no_news(alarm, town):
    town.ann.follows("b")
    town.posted("b", 2, text="a heron of last year")
    assert alarm.alerted() == []


def test_alerts_that_follow_each_other_come_together(alarm, town, clock):
    town.posted("a", 2, text="a heron")
    assert len(alarm.opens()) == 1
    town.posted("a", 3, text="a heron")
    town.posted("a", 4, text="a heron")
    assert alarm.goes_on() == []
    clock.forward(BATCH_S)
    (posted,) = alarm.goes_on()
    assert json.loads(posted.body)["title"] == "2 new entries"


def test_what_was_read_meanwhile_is_not_told(alarm, town):
    (two,) = town.posted("a", 2, text="a heron")
    town.ann.mark([two], unread=False)
    assert alarm.alerted() == []
    town.ann.save_rule(Rule(action="mute", words="heron dead"))
    town.posted("a", 3, text="a dead heron")
    assert alarm.alerted() == []


def test_nobody_is_woken_and_the_night_is_told_in_the_morning(alarm, town, clock, there):
    alarm.wants(town.ann, alert_urls=(f"json://{there.host}/",), timezone="Europe/Berlin", quiet_from=22, quiet_until=7)
    clock.now = MONDAY + 21.5 * HOUR_S  # 22:30 in Berlin
    town.posted("a", 2, text="a heron")
    town.posted("a", 3, text="another heron")
    assert alarm.alerted() == []
    clock.forward(7 * HOUR_S)  # 5:30
    assert alarm.alerted() == []
    clock.forward(2 * HOUR_S)
    (message,) = alarm.alerted()
    assert [line for line in message.splitlines() if line.startswith("Post")] == ["Post 2", "Post 3"]


@pytest.mark.parametrize(("begin", "end", "quiet"), [(0, 0, []), (22, 7, [22, 23, *range(7)]), (8, 10, [8, 9]), (5, 5, [])])
def test_quiet_hours(begin, end, quiet):
    settings = Settings(quiet_from=begin, quiet_until=end)
    assert [hour for hour in range(24) if alerts.is_quiet(settings, MONDAY + hour * HOUR_S)] == sorted(quiet)


def test_what_is_not_taken_is_tried_again_ever_later_and_given_up_at_last(alarm, town, clock, there):
    town.posted("a", 2, text="a heron")
    there.answers += [500] * 1000
    tried = []
    while clock() < MONDAY + 2 * GIVE_UP_S:
        if alarm.opens():
            tried.append(clock())
        clock.forward(60)
        if len(tried) == 3:
            break
    assert 60 <= tried[1] - tried[0] < 200
    assert tried[2] - tried[1] > tried[1] - tried[0]
    (waiting,) = town.ann.undelivered()
    assert (waiting.tries, waiting.problem) == (3, "Apprise could not deliver it")
    clock.forward(GIVE_UP_S)
    assert len(alarm.opens()) == 1
    clock.forward(GIVE_UP_S)
    assert alarm.opens() == []
    (given_up,) = town.ann.undelivered()
    assert (given_up.id, given_up.next_at, given_up.body) == (waiting.id, math.inf, "")
    assert town.bob.undelivered() == []


def test_what_was_given_up_is_forgotten_when_it_was_seen_for_long(alarm, town, clock, there):
    there.answers += [500] * 4
    for number in (2, 3):
        town.posted("a", number, text="a heron")
        made_at = clock()
        alarm.opens()
        clock.forward(GIVE_UP_S + 1)
        alarm.opens()
        clock.forward(SHOWN_S)
    assert [delivery.made_at for delivery in town.ann.undelivered()] == [made_at]


def test_a_test_goes_to_every_address(alarm, town, there):
    alarm.wants(town.ann, alert_urls=(f"json://{there.host}/a",), webhook_url=f"{there.address}/hook")
    assert town.ann.send_test() == 2
    came = {posted.path: json.loads(posted.body) for posted in alarm.opens()}
    assert came["/a"]["title"] == "A test"
    assert came["/hook"]["event_type"] == "save_entry"


def test_a_test_needs_an_address(office, town):
    with pytest.raises(UsageError, match="save an address first"):
        town.ann.send_test()


def test_one_address_that_fails_does_not_bring_the_others_twice(alarm, town, clock, there):
    alarm.wants(town.ann, alert_urls=(f"json://{there.host}/one", f"json://{there.host}/two"))
    town.posted("a", 2, text="a heron")
    there.answers.append(500)
    first = alarm.opens()
    clock.forward(90)
    again = alarm.opens()
    assert sorted(posted.path for posted in first) == ["/one", "/two"]
    assert len(again) == 1


def test_an_address_that_is_not_wanted_any_more_gets_nothing(alarm, town, clock, there):
    town.posted("a", 2, text="a heron")
    there.answers.append(500)
    assert len(alarm.opens()) == 1
    alarm.wants(town.ann)
    clock.forward(90)
    assert alarm.opens() == []


def test_alerts_do_not_reach_into_our_own_network(alarm, town, clock):
    town.posted("a", 2, text="a heron")
    assert alarm.opens(allow_private=False) == []
    clock.forward(90)
    assert len(alarm.opens()) == 1


@pytest.mark.parametrize(
    "url",
    ["nonsense://x", "syslog://", "dbus://", "workflows://host/a/b/c?template=/etc/passwd", "mailto://a:b@c.example?pgpkey=/x"],
)
def test_addresses_that_cannot_be(url):
    need("apprise", "alerts")
    with pytest.raises(UsageError):
        alerts.check_address(url)


def test_addresses_that_can_be():
    need("apprise", "alerts")
    alerts.check_address("ntfy://ntfy.example/mine")


# --- webhooks ----------------------------------------------------------------------------------------------------------


@pytest.fixture
def hooked(office, town, there):
    office.wants(town.ann, webhook_url=f"{there.address}/hook", webhook_secret="hush")
    return office


def test_a_webhook_is_posted_what_is_new_as_miniflux_does_it(hooked, town):
    town.ann.save_rule(Rule(action="mute", words="football"))
    town.bob.follows("a")
    ids = town.posted("a", 2, 3, text="news")
    town.posted("a", 4, text="football")
    (posted,) = hooked.opens()
    told = json.loads(posted.body)
    assert posted.path == "/hook"
    assert posted.headers["X-Miniflux-Event-Type"] == told["event_type"] == "new_entries"
    assert posted.headers["X-Miniflux-Signature"] == hmac.digest(b"hush", posted.body, "sha256").hex()
    assert set(told["feed"]) == {
        "id", "user_id", "category_id", "category", "feed_url", "site_url", "title", "checked_at"
    }  # fmt: skip
    assert [entry["id"] for entry in told["entries"]] == list(ids)
    first = told["entries"][0]
    assert (first["title"], first["status"], first["share_code"], first["content"]) == ("Post 2", "unread", "", "<p>news</p>")
    assert hooked.opens() == []


def test_an_entry_is_saved_to_the_webhook(hooked, town):
    one, two = town.posted("a", 2, 3)
    hooked.opens()
    town.ann.send(one)
    town.ann.send(two)
    posted = [json.loads(posted.body) for posted in hooked.opens()]
    assert [(event["event_type"], event["entry"]["id"]) for event in posted] == [("save_entry", one), ("save_entry", two)]
    assert posted[0]["entry"]["feed"]["feed_url"] == "https://a.example/feed"


def test_there_must_be_somewhere_to_save_to(office, town):
    with pytest.raises(UsageError, match="webhook"):
        town.ann.send(town.posted("a", 2)[0])


def test_a_webhook_is_tried_again_by_whoever_comes_next(hooked, town, clock, there):
    town.posted("a", 2)
    there.answers.append(503)
    first = hooked.opens()
    clock.forward(90)
    again = hooked.opens()
    assert [p.body for p in first] == [p.body for p in again]
    clock.forward(3600)
    assert hooked.opens() == []


def test_a_process_that_died_while_sending_has_lost_nothing(hooked, town, clock):
    town.posted("a", 2)
    ((user_id, kind, settings),) = town.read(notices.waiting)
    town.write(notices.pack, user_id, kind, lambda told: [(settings.webhook_url, "{}")], clock())
    assert len(town.write(notices.take, clock(), clock() + 300)) == 1
    assert hooked.opens() == []
    clock.forward(301)
    assert len(hooked.opens()) == 1


def test_a_webhook_does_not_reach_into_our_own_network(hooked, town):
    town.posted("a", 2)
    assert hooked.opens(allow_private=False) == []


def test_a_removed_user_is_not_told_anything(hooked, town):
    town.bob.follows("a")
    hooked.wants(town.bob, webhook_url=f"{hooked.there.address}/bob")
    town.posted("a", 2)
    town.wait(town.people.remove_user(town.bob.user.id, by=None))
    assert [posted.path for posted in hooked.opens()] == ["/hook"]
