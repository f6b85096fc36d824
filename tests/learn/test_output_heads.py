import torch

from olss.learn.heads import ANSWERS

from .tasks import learned


def biased():
    """A learner whose newest classes answer too often: their weights are too long."""
    learner, stream = learned("weight-aligned")
    layer = learner.model.net[-1]
    with torch.no_grad():
        layer.weight[4:] *= 3
        layer.bias[4:] += 2
    return learner, stream


def test_weights_of_new_classes_are_made_as_long_as_the_old_ones():
    learner, stream = biased()
    learner.parts.answer.fit(learner.model, learner.memory.held)
    X = learner.model.tensor(stream[0].X_test)
    norms = learner.model.net[-1].weight.norm(dim=1)
    factor = norms[:4].mean() / norms[4:].mean()
    expected = learner.model.net(X)
    bias = learner.model.net[-1].bias
    expected[:, 4:] = (expected[:, 4:] - bias[4:]) * factor + bias[4:]
    torch.testing.assert_close(learner._answers(X, None).float(), expected)


def test_bias_correction_undoes_a_bias_towards_new_classes():
    learner, stream = biased()
    old = stream[0]
    scores = []
    for answer in (ANSWERS["seen"]("seen"), ANSWERS["bias-corrected"]()):
        answer.fit(learner.model, learner.memory.held)
        found = answer(learner.model, learner.model.tensor(old.X_test), None).argmax(1)
        scores.append((found.numpy() == old.y_test).mean())
    before, after = scores
    assert after > before + 0.1
