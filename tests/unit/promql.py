"""As much of PromQL as the alert rules use: their expressions are evaluated on metrics in Prometheus' text format."""

from __future__ import annotations

import operator
from collections.abc import Callable, Mapping
from typing import Any

import promql_parser
from prometheus_client.parser import text_string_to_metric_families

Labels = frozenset[tuple[str, str]]
# An instant vector: values by labels, the name of the metric among them as `__name__`.
Vector = dict[Labels, float]

ARITHMETIC: Mapping[str, Callable[[float, float], float]] = {
    "+": operator.add,
    "-": operator.sub,
    "*": operator.mul,
}
COMPARISONS: Mapping[str, Callable[[float, float], bool]] = {"==": operator.eq, ">": operator.gt, "<": operator.lt}


def samples(text: str) -> Vector:
    """Return all samples of a metrics file."""
    return {
        frozenset({"__name__": sample.name, **sample.labels}.items()): sample.value
        for family in text_string_to_metric_families(text)
        for sample in family.samples
    }


def alerts(expression: str, found: Vector, *, now: float = 0.0) -> list[dict[str, str]]:
    """Return the labels of each alert that an expression raises, in the order of the labels."""
    value = _evaluate(promql_parser.parse(expression), found, now)
    assert isinstance(value, dict)
    return sorted((dict(_unnamed(labels)) for labels in value), key=lambda one: sorted(one.items()))


def _evaluate(node: Any, found: Vector, now: float) -> Vector | float:
    kind = type(node).__name__
    if kind == "NumberLiteral":
        return float(node.val)
    if kind == "ParenExpr":
        return _evaluate(node.expr, found, now)
    if kind == "Call" and node.func.name == "time":
        return now
    if kind == "VectorSelector":
        return {labels: value for labels, value in found.items() if _selected(node, dict(labels))}
    if kind == "AggregateExpr" and str(node.op) == "sum":
        return _sum(_evaluate(node.expr, found, now), node.modifier.labels)
    if kind == "BinaryExpr":
        return _binary(node, _evaluate(node.lhs, found, now), _evaluate(node.rhs, found, now))
    raise NotImplementedError(f"{kind} in {node}")


def _selected(node: Any, labels: Mapping[str, str]) -> bool:
    def holds(matcher: Any) -> bool:
        same = labels.get(matcher.name, "") == matcher.value
        operators = {"MatchOp.Equal": same, "MatchOp.NotEqual": not same}
        return operators[str(matcher.op)]

    return labels["__name__"] == node.name and all(map(holds, node.matchers.matchers))


def _sum(vector: Vector | float, by: list[str]) -> Vector:
    assert isinstance(vector, dict)
    sums: Vector = {}
    for labels, value in vector.items():
        group = frozenset((name, text) for name, text in labels if name in by)
        sums[group] = sums.get(group, 0.0) + value
    return sums


def _binary(node: Any, left: Vector | float, right: Vector | float) -> Vector | float:
    symbol = str(node.op)
    if isinstance(left, float) and isinstance(right, float):
        return ARITHMETIC[symbol](left, right)
    on = node.modifier.matching.labels if node.modifier and node.modifier.matching else None

    def key(labels: Labels) -> Labels:
        return frozenset(pair for pair in _unnamed(labels) if on is None or pair[0] in on)

    if symbol == "and":
        assert isinstance(left, dict)
        assert isinstance(right, dict)
        matching = {key(labels) for labels in right}
        return {labels: value for labels, value in left.items() if key(labels) in matching}
    made: Vector = {}
    others = {key(labels): value for labels, value in right.items()} if isinstance(right, dict) else {}
    for labels, value in (left if isinstance(left, dict) else right if isinstance(right, dict) else {}).items():
        other = value if not isinstance(left, dict) else others.get(key(labels)) if isinstance(right, dict) else right
        first = value if isinstance(left, dict) else left
        if other is None:
            continue
        if symbol in COMPARISONS:
            if COMPARISONS[symbol](first, other):
                made[labels] = first
        else:
            made[_unnamed(labels)] = ARITHMETIC[symbol](first, other)
    return made


def _unnamed(labels: Labels) -> Labels:
    return frozenset(pair for pair in labels if pair[0] != "__name__")
