from olss.lab.report.palette import styles


def test_every_method_has_a_look_of_its_own():
    looks = styles([(f"method {i}", "olss") for i in range(30)])
    assert len(set(looks.values())) == 30


def test_colours_do_not_depend_on_who_else_is_there():
    few = styles([("sgd", "sgd"), ("olss", "olss")])
    many = styles(
        [("x", "other"), ("y", "other"), ("sgd", "sgd"), ("gem", "gem"), ("olss", "olss")]
    )
    assert few["sgd"] == many["sgd"]
    assert few["olss"] == many["olss"]
