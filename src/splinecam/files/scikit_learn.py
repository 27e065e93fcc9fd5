"""Estimators of scikit-learn as modules: perceptrons, linear models, pipelines with scalers.

The documented attributes of a fitted estimator are read, and scikit-learn is not imported.
"""

from __future__ import annotations

from collections import OrderedDict
from collections.abc import Callable
from typing import Any

import numpy as np
import torch
from torch import Tensor, nn

from splinecam._util.options import kind_of
from splinecam.errors import CaptureError


def from_sklearn(estimator: Any) -> nn.Module:
    """Return a fitted estimator of scikit-learn as a module in float64, in eval mode.

    Its output is what the estimator computes before the last activation: the prediction of a
    regressor (its logarithm with the loss poisson), or one score for each class of a classifier.
    Two classes have a single score, which is positive where the second is predicted. So
    ``predict_proba`` of a perceptron is ``torch.softmax(model(x), 1)``, or
    ``torch.sigmoid(model(x))`` for two classes. With several labels, each of them has a score.

    estimator: an ``MLPClassifier`` or ``MLPRegressor`` with any hidden activation,
    a linear model such as ``LogisticRegression``, ``LinearSVC``, ``SGDClassifier`` or ``Ridge``, a
    ``Pipeline`` of one of these after ``StandardScaler``, ``MinMaxScaler``, ``MaxAbsScaler``,
    ``RobustScaler``, ``PCA`` or ``TruncatedSVD``, or a fitted search over any of them.

    The names of the classes are in the estimator: give them to ``partition`` by
    ``names=estimator.classes_``.

    >>> import splinecam as sc
    >>> from sklearn.datasets import make_moons
    >>> from sklearn.neural_network import MLPClassifier
    >>> x, y = make_moons(100, random_state=0)
    >>> estimator = MLPClassifier(hidden_layer_sizes=(8, 8), solver="lbfgs", random_state=0)
    >>> model = sc.nn.from_sklearn(estimator.fit(x, y))
    >>> part = sc.partition(model, sc.Domain.box(-2, 3), names=["up", "down"], progress=False)
    >>> part.validate().ok
    True
    """
    return _converted(estimator).double().eval()


def _converted(estimator: Any) -> nn.Module:
    bases = () if isinstance(estimator, type) else type(estimator).__mro__
    names = (base.__name__ for base in bases if base.__module__.partition(".")[0] == "sklearn")
    kind = next(names, None)  # the nearest class of scikit-learn
    convert = _CONVERTERS.get(kind or "")
    if convert is not None:
        return convert(estimator)
    if kind is None:
        raise TypeError(
            f"from_sklearn needs an estimator of scikit-learn, not {kind_of(estimator)}"
        )
    reason = _REFUSED.get(kind, "there is no rule for it")
    raise CaptureError(
        f"{kind} cannot be converted: {reason}. from_sklearn knows {', '.join(_CONVERTERS)}. "
        "Make the same network in PyTorch, or convert the parts that it knows."
    )


def _fitted(estimator: Any, attribute: str) -> Any:
    """Return an attribute that an estimator has after ``fit``."""
    try:
        return getattr(estimator, attribute)
    except AttributeError:
        name = type(estimator).__name__
        raise ValueError(f"this {name} is not fitted: call {name}.fit first") from None


def _tensor(values: Any) -> Tensor:
    """Return a copy of an array or a sparse matrix in float64."""
    dense = values.toarray() if hasattr(values, "toarray") else values
    return torch.from_numpy(np.array(dense, np.float64))


def _linear(weight: Tensor, bias: Tensor) -> nn.Linear:
    """Return the layer with a weight (outputs, inputs) and a bias (outputs,)."""
    outputs, inputs = weight.shape
    layer = nn.Linear(inputs, outputs, dtype=torch.float64)
    with torch.no_grad():
        layer.weight.copy_(weight)
        layer.bias.copy_(bias)
    return layer


def _scaling(shift: Tensor, factor: Tensor, bias: Tensor | None = None) -> nn.BatchNorm1d:
    """Return ``(x - shift) * factor + bias`` for every feature, as a batch normalisation."""
    layer = nn.BatchNorm1d(len(shift), eps=0.0, dtype=torch.float64)
    assert layer.running_mean is not None
    with torch.no_grad():
        layer.running_mean.copy_(shift)
        layer.weight.copy_(factor)
        layer.bias.copy_(torch.zeros_like(shift) if bias is None else bias)
    return layer


_ACTIVATIONS: dict[str, type[nn.Module]] = {
    "relu": nn.ReLU,
    "identity": nn.Identity,
    "tanh": nn.Tanh,
    "logistic": nn.Sigmoid,
}


def _perceptron(estimator: Any) -> nn.Module:
    """Convert a multi-layer perceptron; its last activation is left out."""
    weights, biases = _fitted(estimator, "coefs_"), _fitted(estimator, "intercepts_")
    activation = estimator.activation
    if len(weights) > 1 and activation not in _ACTIVATIONS:
        raise CaptureError(
            f"this {type(estimator).__name__} has the hidden activation {activation!r}, which is "
            f"none of {', '.join(map(repr, _ACTIVATIONS))}"
        )
    layers: list[nn.Module] = []
    for weight, bias in zip(weights, biases, strict=True):
        if layers and activation != "identity":
            layers.append(_ACTIVATIONS[activation]())
        layers.append(_linear(_tensor(weight).T, _tensor(bias)))
    return nn.Sequential(*layers)


def _linear_model(estimator: Any) -> nn.Module:
    """Convert a linear regressor or classifier: its decision function or prediction."""
    weight = _tensor(_fitted(estimator, "coef_"))
    weight = weight.reshape(-1, weight.shape[-1])  # a single target has one row without its axis
    bias = _tensor(_fitted(estimator, "intercept_")).reshape(-1)
    return _linear(weight, bias.expand(len(weight)))


def _divided(estimator: Any) -> nn.Module:
    """Convert a scaler that divides by ``scale_``; what it leaves out is None."""
    divisor, count = _fitted(estimator, "scale_"), estimator.n_features_in_
    # A StandardScaler has a mean in any case, because the deviation is measured from it.
    robust = hasattr(estimator, "center_")
    shift = estimator.center_ if robust else estimator.mean_ if estimator.with_mean else None
    return _scaling(
        torch.zeros(count) if shift is None else _tensor(shift),
        torch.ones(count) if divisor is None else 1 / _tensor(divisor),
    )


def _ranged(estimator: Any) -> nn.Module:
    """Convert a MinMaxScaler or a MaxAbsScaler, which may limit features to its range."""
    scale = _tensor(_fitted(estimator, "scale_"))
    if hasattr(estimator, "min_"):
        bounds, factor, bias = estimator.feature_range, scale, _tensor(estimator.min_)
    else:
        bounds, factor, bias = (-1, 1), 1 / scale, None
    scaled = _scaling(torch.zeros_like(scale), factor, bias)
    if not getattr(estimator, "clip", False):
        return scaled
    low, high = map(float, bounds)
    return nn.Sequential(scaled, nn.Hardtanh(low, high))


def _pca(estimator: Any) -> nn.Module:
    """Convert a projection to components; a shift before it keeps the digits of centered ones."""
    weight = _tensor(_fitted(estimator, "components_"))
    if not hasattr(estimator, "mean_"):  # a TruncatedSVD
        return _linear(weight, torch.zeros(len(weight)))
    mean = _tensor(estimator.mean_)
    if estimator.whiten:
        # As in scikit-learn: a deviation below the rounding unit is raised to it.
        variance = np.asarray(estimator.explained_variance_)
        deviation = np.maximum(np.sqrt(variance), np.finfo(variance.dtype).eps)
        weight = weight / _tensor(deviation)[:, None]
    shifted = _scaling(mean, torch.ones_like(mean))
    return nn.Sequential(shifted, _linear(weight, torch.zeros(len(weight))))


def _pipeline(estimator: Any) -> nn.Module:
    """Convert the steps of a pipeline to children of their names."""
    children: OrderedDict[str, nn.Module] = OrderedDict()
    empty = nn.Sequential()
    for name, step in estimator.steps:
        if step in (None, "passthrough"):
            continue
        word = name.replace(".", "_") or "step"
        while word in children or hasattr(empty, word):  # no child can have the name
            word += "_"
        try:
            children[word] = _converted(step)
        except (CaptureError, TypeError, ValueError) as error:
            raise type(error)(f"step {name!r} of the pipeline: {error}") from error
    return nn.Sequential(children)


def _search(estimator: Any) -> nn.Module:
    """Convert the best estimator that a search over parameters has found."""
    return _converted(_fitted(estimator, "best_estimator_"))


_LINEAR = (
    "LogisticRegression LogisticRegressionCV LinearSVC SGDClassifier Perceptron "
    "PassiveAggressiveClassifier RidgeClassifier RidgeClassifierCV LinearDiscriminantAnalysis "
    "LinearRegression Ridge RidgeCV Lasso LassoCV ElasticNet ElasticNetCV HuberRegressor "
    "LinearSVR SGDRegressor"
)
_CONVERTERS: dict[str, Callable[[Any], nn.Module]] = {
    "MLPClassifier": _perceptron,
    "MLPRegressor": _perceptron,
    **dict.fromkeys(_LINEAR.split(), _linear_model),
    "StandardScaler": _divided,
    "MinMaxScaler": _ranged,
    "MaxAbsScaler": _ranged,
    "RobustScaler": _divided,
    "PCA": _pca,
    "TruncatedSVD": _pca,
    "Pipeline": _pipeline,
    "GridSearchCV": _search,
    "RandomizedSearchCV": _search,
}
_REFUSED = {
    "ColumnTransformer": "it selects columns of a table, and the domain of a partition lies in the "
    "space of arrays; scale the columns before, and give the last steps alone",
    "Normalizer": "dividing by a norm is not piecewise linear",
    "PolynomialFeatures": "products of features are not piecewise linear",
    "SVC": "its kernel is not piecewise linear; LinearSVC is",
    "SVR": "its kernel is not piecewise linear; LinearSVR is",
    "DecisionTreeClassifier": "its output is not continuous",
    "DecisionTreeRegressor": "its output is not continuous",
    "RandomForestClassifier": "its output is not continuous",
    "RandomForestRegressor": "its output is not continuous",
}
