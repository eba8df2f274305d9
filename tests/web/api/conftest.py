"""An API server with users Ann and Bob: both are subscribed to Alpha, Ann also to Beta."""

import pytest

from tests.clients.servers import ApiServer, BlogServer


@pytest.fixture(scope="module")
def blogs():
    with BlogServer() as blogs:
        yield blogs


@pytest.fixture(scope="module")
def server(tmp_path_factory):
    with ApiServer(tmp_path_factory.mktemp("server")) as server:
        yield server


@pytest.fixture(scope="module")
def users(server, blogs):
    ann, bob = server.user("ann", admin=True), server.user("bob")
    ann.alpha = bob.alpha = ann.subscribe_to(blogs.feed("alpha"))
    ann.beta = ann.subscribe_to(blogs.feed("beta"), folder="Tech & Café/x+y")
    bob.subscribe_to(blogs.feed("alpha"))
    return ann, bob


@pytest.fixture
def ann(users):
    """Ann with all entries unread, without stars and tags."""
    return _reset(users[0])


@pytest.fixture
def bob(users):
    return _reset(users[1])


def _reset(user):
    from tidings.store.user_models import Stream

    ids = user.ids(Stream(), limit=1000).ids
    user.mark(ids, unread=True, starred=False, rating=0)
    for tag in user.tags():
        user.remove_tag(tag.name)
    user.entries = sorted(ids)
    return user
