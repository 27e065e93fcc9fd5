"""Estimators of scikit-learn as modules; scikit-learn itself is the judge."""

import warnings
from typing import Any

import numpy as np
import pytest
import torch
from sklearn import decomposition, discriminant_analysis, linear_model, preprocessing, svm
from sklearn.compose import ColumnTransformer
from sklearn.exceptions import ConvergenceWarning
from sklearn.model_selection import GridSearchCV
from sklearn.neural_network import MLPClassifier, MLPRegressor
from sklearn.pipeline import Pipeline, make_pipeline
from sklearn.tree import DecisionTreeClassifier
from torch import nn

import splinecam as sc
from splinecam.errors import CaptureError
from splinecam.network.capture import capture

RANDOM = np.random.default_rng(0)
FEATURES = 3
X = RANDOM.normal(size=(90, FEATURES)) * [1.0, 20.0, 0.1] + [0.0, 500.0, -3.0]
LABELS = np.digitize(X[:, 0] * (X[:, 1] - 500) / 20, [-0.3, 0.3])
TARGETS = X @ [1.0, 0.1, 5.0] + RANDOM.normal(size=90)
POINTS = RANDOM.normal(size=(200, FEATURES)) * [3.0, 60.0, 0.3] + [0.0, 500.0, -3.0]


def fitted(estimator: Any, y: Any) -> Any:
    with warnings.catch_warnings():
        warnings.simplefilter("ignore", ConvergenceWarning)
        warnings.simplefilter("ignore", FutureWarning)
        return estimator.fit(X, y)


def perceptron(kind: Any = MLPClassifier, hidden: tuple[int, ...] = (7, 5), **options: Any) -> Any:
    return kind(hidden_layer_sizes=hidden, solver="lbfgs", max_iter=30, random_state=0, **options)


def scores(model: nn.Module, x: Any) -> Any:
    with torch.no_grad():
        return model(torch.as_tensor(x, dtype=torch.float64)).numpy()


def plane() -> sc.Domain:
    """A square through the middle of the data, in which all features change."""
    centre = torch.from_numpy(X.mean(0))
    sides = torch.from_numpy(np.add(np.diag(X.std(0))[:2], [0.0, 0.0, 0.05]))
    a, b = 2 * sides
    return sc.Domain.polygon(torch.stack([centre - a - b, centre + a - b, centre + a + b]))


def vertices(model: nn.Module) -> Any:
    """The inputs at the vertices of a partition, which must be valid."""
    part = sc.partition(model, plane(), progress=False)
    assert part.validate().ok
    return part.domain.embed(part.vertices).numpy()


@pytest.mark.parametrize("activation", ["relu", "identity"])
@pytest.mark.parametrize("hidden", [(), (6,), (7, 5)])
def test_classifiers_with_several_classes(activation: str, hidden: tuple[int, ...]) -> None:
    estimator = fitted(
        make_pipeline(preprocessing.StandardScaler(), perceptron(hidden=hidden)), LABELS
    )
    estimator[-1].activation = activation  # the weights fit another network just as well
    model = sc.nn.from_sklearn(estimator)
    for x in (POINTS, vertices(model)):
        found = torch.softmax(torch.from_numpy(scores(model, x)), 1).numpy()
        np.testing.assert_allclose(found, estimator.predict_proba(x), rtol=1e-9, atol=1e-12)
        assert (estimator.classes_[found.argmax(1)] == estimator.predict(x)).mean() > 0.99


def test_a_classifier_of_two_classes_has_one_score() -> None:
    names = np.array(["night", "day"])[(LABELS > 0).astype(int)]
    estimator = fitted(make_pipeline(preprocessing.StandardScaler(), perceptron()), names)
    model = sc.nn.from_sklearn(estimator)
    part = sc.partition(model, plane(), names=estimator.classes_, progress=False)
    assert part.names == ("day", "night")
    assert part.validate().ok
    found = scores(model, POINTS)
    assert found.shape == (len(POINTS), 1)
    probable = torch.sigmoid(torch.from_numpy(found[:, 0])).numpy()
    np.testing.assert_allclose(probable, estimator.predict_proba(POINTS)[:, 1], rtol=1e-9)
    assert (estimator.classes_[(found[:, 0] > 0).astype(int)] == estimator.predict(POINTS)).all()
    boundary = part.decision_boundary()
    on_it = boundary.sample(50).numpy()
    np.testing.assert_allclose(estimator.predict_proba(on_it)[:, 0], 0.5, atol=1e-9)


def test_several_labels_at_once() -> None:
    labels = np.stack([LABELS > 0, LABELS > 1], 1).astype(int)
    estimator = fitted(make_pipeline(preprocessing.StandardScaler(), perceptron()), labels)
    found = torch.sigmoid(torch.from_numpy(scores(sc.nn.from_sklearn(estimator), POINTS))).numpy()
    np.testing.assert_allclose(found, estimator.predict_proba(POINTS), rtol=1e-9)


@pytest.mark.parametrize("outputs", [1, 2])
def test_regressors(outputs: int) -> None:
    targets = TARGETS if outputs == 1 else np.stack([TARGETS, X[:, 0]], 1)
    estimator = fitted(
        make_pipeline(preprocessing.StandardScaler(), perceptron(MLPRegressor)), targets
    )
    model = sc.nn.from_sklearn(estimator)
    for x in (POINTS, vertices(model)):
        found = scores(model, x)
        assert found.shape == (len(x), outputs)
        expected = estimator.predict(x).reshape(len(x), outputs)
        np.testing.assert_allclose(found, expected, rtol=1e-9, atol=1e-10)


@pytest.mark.parametrize(
    "scaler",
    [
        preprocessing.StandardScaler(),
        preprocessing.StandardScaler(with_mean=False),
        preprocessing.StandardScaler(with_std=False),
        preprocessing.StandardScaler(with_mean=False, with_std=False),
        preprocessing.MinMaxScaler(),
        preprocessing.MinMaxScaler((-2, 3), clip=True),
        preprocessing.MaxAbsScaler(),
        preprocessing.RobustScaler(),
        preprocessing.RobustScaler(with_centering=False),
        preprocessing.RobustScaler(with_scaling=False, unit_variance=True),
        decomposition.PCA(),
        decomposition.PCA(2, whiten=True),
        decomposition.TruncatedSVD(2),
        "passthrough",
        None,
    ],
    ids=repr,
)
def test_scalers(scaler: Any) -> None:
    steps = [("first.scaler", scaler), ("append", perceptron(MLPRegressor))]
    estimator = fitted(Pipeline(steps), TARGETS)
    model = sc.nn.from_sklearn(estimator)
    assert list(dict(model.named_children())) == [
        *(["first_scaler"] if hasattr(scaler, "fit") else []),
        "append_",
    ]
    for x in (POINTS, vertices(model)):
        expected = estimator.predict(x)
        np.testing.assert_allclose(scores(model, x)[:, 0], expected, rtol=1e-8, atol=1e-8)


def test_a_constant_feature_is_not_divided_by_zero() -> None:
    flat = X.copy()
    flat[:, 1] = 7.0
    for scaler in (preprocessing.StandardScaler(), preprocessing.RobustScaler()):
        scaler.fit(flat)
        np.testing.assert_allclose(
            scores(sc.nn.from_sklearn(scaler), POINTS), scaler.transform(POINTS), rtol=1e-12
        )
    projection = decomposition.PCA(whiten=True).fit(flat)
    # The last component is rounding noise, divided by the rounding unit.
    found, expected = scores(sc.nn.from_sklearn(projection), flat), projection.transform(flat)
    np.testing.assert_allclose(found[:, :2], expected[:, :2], atol=1e-10)
    assert np.isfinite(found).all()


CLASSIFIERS = [
    linear_model.LogisticRegression(),
    svm.LinearSVC(),
    linear_model.SGDClassifier(),
    linear_model.Perceptron(),
    linear_model.RidgeClassifier(),
    discriminant_analysis.LinearDiscriminantAnalysis(),
]


@pytest.mark.parametrize("classes", [2, 3])
@pytest.mark.parametrize("estimator", CLASSIFIERS, ids=lambda e: type(e).__name__)
def test_linear_classifiers(estimator: Any, classes: int) -> None:
    fitted(estimator, LABELS % classes)
    found = scores(sc.nn.from_sklearn(estimator), POINTS)
    expected = estimator.decision_function(POINTS).reshape(len(POINTS), -1)
    np.testing.assert_allclose(found, expected, rtol=1e-10, atol=1e-10)


@pytest.mark.parametrize(
    "estimator",
    [
        linear_model.LinearRegression(),
        linear_model.LinearRegression(fit_intercept=False),
        linear_model.Ridge(),
        linear_model.Lasso(),
        linear_model.ElasticNet(),
        linear_model.HuberRegressor(),
        svm.LinearSVR(),
    ],
    ids=repr,
)
def test_linear_regressors(estimator: Any) -> None:
    fitted(estimator, TARGETS)
    found = scores(sc.nn.from_sklearn(estimator), POINTS)
    np.testing.assert_allclose(found[:, 0], estimator.predict(POINTS), rtol=1e-10, atol=1e-10)


def test_sparse_weights() -> None:
    estimator = fitted(linear_model.SGDClassifier(penalty="l1"), LABELS)
    expected = estimator.decision_function(POINTS)
    estimator.sparsify()
    np.testing.assert_allclose(scores(sc.nn.from_sklearn(estimator), POINTS), expected, rtol=1e-10)


def test_the_best_estimator_of_a_search() -> None:
    search = GridSearchCV(linear_model.Ridge(), {"alpha": [0.1, 1.0]}, cv=2)
    fitted(search, TARGETS)
    found = scores(sc.nn.from_sklearn(search), POINTS)
    np.testing.assert_allclose(found[:, 0], search.predict(POINTS), rtol=1e-10)


def test_weights_in_single_precision_are_kept() -> None:
    estimator = MLPRegressor(hidden_layer_sizes=(7, 5), max_iter=3, random_state=0)
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")
        estimator.fit(X.astype(np.float32), TARGETS.astype(np.float32))
    assert estimator.coefs_[0].dtype == np.float32
    model = sc.nn.from_sklearn(estimator)
    assert all(weight.dtype == torch.float64 for weight in model.parameters())
    assert torch.equal(model[0].weight, torch.from_numpy(estimator.coefs_[0].T).double())


def test_the_module_is_a_copy() -> None:
    estimator = fitted(perceptron(MLPRegressor), TARGETS)
    model = sc.nn.from_sklearn(estimator)
    before = scores(model, POINTS)
    estimator.coefs_[0][:] = 0
    assert (scores(model, POINTS) == before).all()
    assert not model.training


def test_own_classes_that_are_derived_from_estimators() -> None:
    class Own(linear_model.Ridge):
        pass

    estimator = fitted(Own(), TARGETS)
    found = scores(sc.nn.from_sklearn(estimator), POINTS)
    np.testing.assert_allclose(found[:, 0], estimator.predict(POINTS))


# -- errors -----------------------------------------------------------------------------------


@pytest.mark.parametrize("activation", ["tanh", "logistic"])
def test_smooth_activations_are_refused_unless_they_are_replaced(activation: str) -> None:
    estimator = fitted(perceptron(activation=activation), LABELS)
    model = sc.nn.from_sklearn(estimator)
    with pytest.raises(CaptureError, match="smooth=True"):
        sc.capture(model, (X.shape[1],))
    layers = capture(model, (X.shape[1],), smooth=True).layers
    curves = [layer.curve.name for layer in layers]
    assert set(curves) == {{"tanh": "tanh", "logistic": "sigmoid"}[activation]}


@pytest.mark.parametrize(
    "estimator",
    [
        perceptron(),
        linear_model.Ridge(),
        preprocessing.StandardScaler(),
        preprocessing.MinMaxScaler(),
        decomposition.PCA(),
        GridSearchCV(linear_model.Ridge(), {"alpha": [1.0]}),
    ],
    ids=lambda e: type(e).__name__,
)
def test_estimators_that_are_not_fitted(estimator: Any) -> None:
    with pytest.raises(ValueError, match=f"this {type(estimator).__name__} is not fitted"):
        sc.nn.from_sklearn(estimator)
    with pytest.raises(ValueError, match=r"step 'own' of the pipeline: this .* is not fitted"):
        sc.nn.from_sklearn(Pipeline([("own", estimator)]))


def test_estimators_that_are_not_piecewise_linear() -> None:
    for estimator, words in (
        (fitted(DecisionTreeClassifier(), LABELS), "not continuous"),
        (fitted(svm.SVC(), LABELS), "LinearSVC is"),
        (ColumnTransformer([("s", preprocessing.StandardScaler(), [0])]), "columns of a table"),
        (preprocessing.KBinsDiscretizer(), "there is no rule for it"),
    ):
        with pytest.raises(CaptureError, match=words) as caught:
            sc.nn.from_sklearn(estimator)
        assert type(estimator).__name__ in str(caught.value)
        assert "MLPClassifier" in str(caught.value)
    both = make_pipeline(preprocessing.Normalizer(), perceptron())
    with pytest.raises(CaptureError, match="step 'normalizer' of the pipeline: Normalizer"):
        sc.nn.from_sklearn(both)


@pytest.mark.parametrize("given", [nn.Linear(2, 2), "net.onnx", None, MLPClassifier])
def test_what_is_no_estimator(given: Any) -> None:
    with pytest.raises(TypeError, match="needs an estimator of scikit-learn"):
        sc.nn.from_sklearn(given)


def test_partition_says_how_to_convert_an_estimator() -> None:
    for estimator in (perceptron(), make_pipeline(preprocessing.StandardScaler(), perceptron())):
        with pytest.raises(TypeError, match=r"not .*sklearn.*: convert it.*sc.nn.from_sklearn"):
            sc.partition(estimator, sc.Domain.box(-1, 1))
