"""A9: a mapping that may hold secrets is hidden without masking the rest of the result."""

from __future__ import annotations

from types import SimpleNamespace

from ansible_collections.vgpu.fleet.plugins.module_utils.concealed_option import HIDDEN, conceal

SPEC = {
    "password": {"type": "str", "no_log": True},
    "cloud_init": {
        "type": "dict",
        "options": {"user_data": {"type": "str", "no_log": True}, "meta_data": {"type": "raw", "no_log": True}},
    },
}


def module(**cloud_init):
    params = {"password": "vcenter-password", "cloud_init": cloud_init or None}
    secrets = {"vcenter-password", "worker-1", "1", "deep", "#cloud-config"}
    return SimpleNamespace(argument_spec=SPEC, params=params, no_log_values=secrets)


def test_its_values_are_no_longer_searched_for_and_it_is_hidden_in_the_parameters():
    meta_data = {"local-hostname": "worker-1", "count": 1, "nested": [{"a": "deep"}], "flag": True, "empty": None}
    given = module(user_data="#cloud-config", meta_data=meta_data)
    conceal(given, "cloud_init", "meta_data")
    assert given.no_log_values == {"vcenter-password", "#cloud-config"}
    assert given.params["cloud_init"] == {"user_data": "#cloud-config", "meta_data": HIDDEN}


def test_a_secret_of_another_option_stays_one():
    given = module(user_data="#cloud-config", meta_data={"again": "vcenter-password", "name": "worker-1"})
    conceal(given, "cloud_init", "meta_data")
    assert "vcenter-password" in given.no_log_values
    assert "worker-1" not in given.no_log_values


def test_text_and_nothing_are_left_to_ansible():
    for given in (module(), module(user_data="#cloud-config"), module(meta_data="instance-id: worker-1")):
        before = set(given.no_log_values), given.params
        conceal(given, "cloud_init", "meta_data")
        assert (given.no_log_values, given.params) == before
