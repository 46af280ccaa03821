"""Attacks that change something outside the workspace, by commands that were allowed."""

from tests.redteam.house import Attack

_WRITE = "for p in {other} {other}/.git {other}/.git/hooks {home} /etc /usr; do touch $p/made; done"
_POINTED = {
    "absolute": ("gitdir: evil", {"evil/gitdir": ".git", "evil/commondir": "{other}"}),
    "relative": ("gitdir: evil", {"evil/gitdir": ".git", "evil/commondir": "../../other"}),
    "the root": ("gitdir: evil", {"evil/gitdir": ".git", "evil/commondir": "/"}),
    "its git": ("gitdir: evil", {"evil/gitdir": ".git", "evil/commondir": "{other}/.git"}),
    "straight": ("gitdir: {other}/.git", {}),
    "as a worktree": (
        "gitdir: evil/worktrees/w",
        {"evil/worktrees/w/gitdir": "{home}/ws/.git", "evil/worktrees/w/commondir": "{other}/.git"},
    ),
    "as a whole repository": (
        "gitdir: evil/worktrees/w",
        {"evil/worktrees/w/gitdir": "{home}/ws/.git", "evil/worktrees/w/commondir": "../..",
         "evil/HEAD": "ref: refs/heads/m", "evil/objects": "-> ../../other",
         "evil/refs": "-> ../../other"},
    ),
    "a link": ("-> ../other/.git", {}),
}  # fmt: skip
_TAKEN = {
    "a pointer": "echo 'gitdir: {other}/.git' > .git",
    "a pointer deeper": "mkdir sub; echo 'gitdir: {other}/.git' > sub/.git",
    "a link": "ln -s {other}/.git .git",
    "a link deeper": "mkdir sub; ln -s {other}/.git sub/.git",
    "a copy that names it": "mkdir sub; printf 'gitdir: %s' {other}/.git/worktrees/x > sub/.git",
    "a common directory": "git init -q .; echo {other}/.git > .git/commondir",
    "linked hooks": "git init -q .; rm -rf .git/hooks; ln -s {other}/.git/hooks .git/hooks",
    "a linked config": "git init -q .; rm .git/config; ln -s {other}/.git/config .git/config",
    "a linked module": "git init -q .; mkdir .git/modules; ln -s {other}/.git .git/modules/m",
    "linked info": "git init -q .; rm -rf .git/info; ln -s {other}/.git .git/info",
    "a linked folder of keys": "ln -s {home}/.ssh .ssh; mkdir a; ln -s {home}/.ssh a/.ssh",
    "folders one after another": "mkdir -p a/.ssh; mv a b; ln -s {home} a; sleep 0.1",
    "a worktree of another": "mkdir -p .git/worktrees/x; ln -s {other}/.git .git/worktrees/x/commondir",
}  # fmt: skip
_OUT = {
    "by mounts": "mount --bind {other} m; umount /; unshare -rm sh -c 'mount -o remount,rw /; touch {home}/made'",
    "by a hard link": "ln {other}/notes.txt x && echo x > x; ln {home}/plain.txt y && echo x > y",
    "by descriptors": "for f in /proc/self/fd/* /proc/1/fd/*; do echo x > $f/../plain.txt; done",
    "by its parent": "echo x > /proc/1/root{home}/plain.txt; echo x > /proc/$PPID/root{home}/made",
    "by a signal": "kill -9 -1; kill -STOP 1; true",
    "by a name with dots": "cd ..; touch made; cd ws/../../; touch made",
    "by chroot": "chroot / touch {home}/made; nsenter -t 1 -a touch {home}/made",
    "by a device": "mknod d b 8 0; mknod d2 b 254 0; cat d d2 | head -c 1 > /dev/null",
    "after it ended": "(setsid sh -c 'sleep 1; touch {home}/made' &) ; (nohup sleep 1 && touch {home}/made) &",
}  # fmt: skip
_CONNECT = (
    "import socket, glob, os\n"
    "for p in [*glob.glob('{home}/*.sock'), *glob.glob('{other}/*.sock'), *glob.glob('../*.sock'), 'l']:\n"
    "    for kind in (socket.SOCK_STREAM, socket.SOCK_SEQPACKET):\n"
    "        try: socket.socket(socket.AF_UNIX, kind).connect(p)\n"
    "        except OSError: pass\n"
)

BREAKERS = (
    *(
        Attack(name=f"pointer {name}", plants={**more, "go": _WRITE, ".git": pointer},
               calls=["bash go", "bash go"])
        for name, (pointer, more) in _POINTED.items()
    ),
    *(
        Attack(name=f"taken away: {name}", plants={"go": script}, calls=["bash go", "ls", "bash go"])
        for name, script in _TAKEN.items()
    ),
    *(
        Attack(name=f"out {name}", plants={"go": script}, calls=["bash go"])
        for name, script in _OUT.items()
    ),
    *(
        Attack(name=f"sockets {name}", plants={"go": _CONNECT, "l": "-> ../other/hard.sock"},
               calls=["python3 go"], settings=settings)
        for name, settings in (("offline", {}), ("online", {"sandbox.network": True}))
    ),
    Attack(
        name="write_file through a link", plants={"l": "-> ../other"},
        calls=[("write_file", {"path": "l/made", "content": "x"})], mode="accept-edits",
    ),
    Attack(
        name="write_file to a hard link", before="ln ../plain.txt h",
        calls=[("read_file", {"path": "h", "limit": 0}),
               ("write_file", {"path": "h", "content": "x"})], mode="rules-only",
    ),
)  # fmt: skip
