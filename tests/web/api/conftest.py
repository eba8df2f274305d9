"""A house with two readers, Ann and Bob, who follow the same blog; Ann has a folder with another."""

import pytest

from tests.clients.house import House, Press


@pytest.fixture(scope="module")
def press():
    with Press() as press:
        yield press


@pytest.fixture(scope="module")
def house(tmp_path_factory):
    with House(tmp_path_factory.mktemp("house")) as house:
        yield house


@pytest.fixture(scope="module")
def people(house, press):
    ann, bob = house.reader("ann", admin=True), house.reader("bob")
    ann.alpha = bob.alpha = ann.follow(press.feed("alpha"))
    ann.beta = ann.follow(press.feed("beta"), folder="Tech & Café/x+y")
    bob.follow(press.feed("alpha"))
    return ann, bob


@pytest.fixture
def ann(people):
    """As she was: everything unread, nothing starred or tagged."""
    return _anew(people[0])


@pytest.fixture
def bob(people):
    return _anew(people[1])


def _anew(person):
    from tidings.store.people_rows import Stream

    ids = person.ids(Stream(), limit=1000).ids
    person.mark(ids, unread=True, starred=False, rating=0)
    for tag in person.tags():
        person.remove_tag(tag.name)
    person.entries = sorted(ids)
    return person
