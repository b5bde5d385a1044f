"""An example: files made, listed, read and removed, and children that are waited for."""  # noqa: INP001

import os

COUNT = 300
CHILDREN = 20
FOLDER = "/tmp/files"  # noqa: S108 - there is nobody else in the guest

os.mkdir(FOLDER)  # noqa: PTH102 - pathlib is 50 modules more, which the guest would compile
for number in range(COUNT):
    with open(f"{FOLDER}/{number}", "w") as stream:  # noqa: PTH123
        stream.write(str(number))
for entry in os.scandir(FOLDER):
    with open(entry) as stream:  # noqa: PTH123
        assert stream.read() == entry.name  # noqa: S101
    os.unlink(entry)  # noqa: PTH108
for _ in range(CHILDREN):
    if not (child := os.fork()):
        os._exit(0)
    os.waitpid(child, 0)
