from olss.lab.report.collect import ORDER
from olss.lab.report.figures import USUAL, styles
from olss.learn import recipe_names


def test_every_method_has_a_look_of_its_own():
    looks = styles([(f"method {i}", "olss", None) for i in range(30)])
    assert len(set(looks.values())) == 30


def test_every_recipe_has_a_place_and_a_colour():
    assert set(ORDER) == set(USUAL) == set(recipe_names())


def test_colours_do_not_depend_on_who_else_is_there():
    few = styles([("sgd", "sgd", None), ("olss", "olss", "paper")])
    many = styles(
        (name, name, "paper" if name == "olss" else None)
        for name in ("x", "y", "sgd", "gem", "olss")
    )
    assert few["sgd"] == many["sgd"]
    assert few["olss"] == many["olss"]


def test_methods_of_a_kind_share_a_colour_and_differ_in_dashes():
    found = styles([("gem", "gem", None), ("w", "olss", "weighted"), ("m", "olss", "weighted")])
    assert len({style.colour for style in found.values()}) == 1
    assert [bool(style.dash) for style in found.values()] == [False, True, True]
    assert len(set(found.values())) == 3
