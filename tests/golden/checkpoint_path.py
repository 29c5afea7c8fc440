"""Numbers in the names of checkpoints, as Python's str.format writes them: writes checkpoint_path.json beside this script.

It needs no package. A format that Python refuses has `null` as what it writes.
"""

import json
import pathlib


def written(spec, value):
    try:
        return format(value, spec)
    except ValueError:
        return None


whole = ["", "d", "02d", "2d", "04d", ">4", "<4d", "^5d", "=+5d", "+d", " d", "x<05d", "_>6", "<05d", ".2f", "06.1f", ".1e", "g", "%"]
fraction = ["", ".2f", ".0f", "f", "F", "8.3f", "<8.2f", "^9.1f", "-^9.1f", "+.2f", "08.3f", "=+9.2f", " .1f", ".3", ".1", "e", ".2e", ".4E",
            "g", ".3g", ".1g", ".0g", "G", ".1%", "%", ".0%", "010.2%", "x>12.4g", "<", ">20"]
refused = ["2.3d", ".2d", "0.3"]
fractions = ["0.0", "-0.0", "0.25", "0.35", "0.125", "0.5", "1.5", "2.5", "0.4567", "0.99999", "1.0", "9.995", "100.0", "123456.0", "1234567.0",
             "2.302585092994046", "1e-05", "0.0001", "0.00012345", "1e+16", "1234567890123456.0", "1e+22", "-3.75", "nan", "inf", "-inf", "5e-324"]
cases = [{"format": spec, "whole": value, "written": written(spec, value)} for spec in whole + refused for value in [0, 1, 7, 42, 12345]]
cases += [{"format": spec, "fraction": text, "written": written(spec, float(text))} for spec in fraction + ["d", "02d"] for text in fractions]

lines = ",\n".join(json.dumps(case) for case in cases)
pathlib.Path(__file__).with_suffix(".json").write_text(f"[\n{lines}\n]\n")
