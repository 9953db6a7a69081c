"""Uses files as Python trainers do, in the folder that it is started in, and prints what it sees."""
import glob
import multiprocessing.connection
import os
import pathlib
import shutil
import socket
import tempfile


def attempt(what, function, *arguments, **named):
    try:
        print(what, function(*arguments, **named))
    except OSError as error:
        print(what, type(error).__name__, error.errno)


def show(path):
    attempt(path, lambda: pathlib.Path(path).read_text())


def save(path, text):
    with tempfile.NamedTemporaryFile("w", dir=".", delete=False) as file:
        file.write(text)
    os.replace(file.name, path)


for step in range(3):
    save("data", f"checkpoint {step}\n")
    show("data")
with open("log", "a") as log:
    log.write("from Python\n")
show("log")
with open("page", "r+b") as page:
    page.seek(3)
    page.write(b"!")
show("page")
attempt("exclusive", open, "log", "x")
attempt("absent", open, "absent")
os.makedirs("runs/1/logs", exist_ok=True)
pathlib.Path("runs/1/logs/events").write_text("events")
shutil.copytree("tree", "runs/tree")
shutil.copy2("old", "runs/old")
print(sorted(glob.glob("runs/**", recursive=True)))
print(sorted(os.listdir(".")))
print(sorted((entry.name, entry.is_dir(), entry.is_symlink()) for entry in os.scandir("mixed")))
print(sorted((folder, sorted(folders), sorted(files)) for folder, folders, files in os.walk(".")))
shutil.move("tree", "elsewhere")
attempt("tree", os.listdir, "tree")
print(sorted(os.listdir("elsewhere/branch")))
shutil.rmtree("elsewhere")
attempt("elsewhere", os.stat, "elsewhere")
os.rename("old", "old.bak")
show("old.bak")
attempt("remove", os.remove, "old")
attempt("rmdir", os.rmdir, "mixed")
with tempfile.TemporaryDirectory() as folder:
    pathlib.Path(folder, "x").write_text("x")
    print(os.listdir(folder))
    print(os.path.realpath(folder) == folder)
print(os.path.exists(folder))
os.symlink("data", "latest")
show("latest")
print(os.path.realpath("latest") == os.path.join(os.getcwd(), "data"), os.readlink("latest"))
os.chdir("runs")
print(os.path.basename(os.getcwd()), sorted(os.listdir()))
os.chdir("..")
os.chmod("data", 0o600)
print(oct(os.stat("data").st_mode), os.stat("data").st_size)
descriptor = os.open("mixed", os.O_RDONLY)
print(sorted(os.listdir(descriptor)))
os.rename("one", "uno", src_dir_fd=descriptor, dst_dir_fd=descriptor)
os.unlink("two", dir_fd=descriptor)
print(sorted(os.listdir(descriptor)), os.stat("uno", dir_fd=descriptor).st_size)
os.close(descriptor)
print(sorted(path.name for path in pathlib.Path("mixed").iterdir()))
if os.fork() == 0:
    pathlib.Path("of the child").write_text("child")
    os._exit(0)
os.wait()
show("of the child")
shutil.copy2("data", "copy")
shutil.copystat("data", "mixed/three")
show("copy")
print(oct(os.stat("mixed/three").st_mode))
with open("target") as target:
    os.fchmod(target.fileno(), 0o640)
    os.utime(target.fileno(), (1000, 2000))
print(oct(os.stat("target").st_mode), os.stat("target").st_mtime)
pathlib.Path("own").write_text("own")
os.chmod("empty", 0o711)
os.utime("empty", (1, 2))
for name in ("own", "target"):
    with open(name, "rb+") as file:
        os.fchmod(file.fileno(), 0o604)
    print(name, oct(os.stat(name).st_mode))


def serve(listener):
    with listener, listener.accept() as connection:
        connection.send(connection.recv() + 1)


with tempfile.TemporaryDirectory() as folder:
    with multiprocessing.connection.Listener(os.path.join(folder, "listener")) as listener:
        print(os.path.exists(os.path.join(folder, "listener")))
        server = multiprocessing.get_context("fork").Process(target=serve, args=(listener,))
        server.start()
        with multiprocessing.connection.Client(listener.address) as client:
            client.send(41)
            print(client.recv())
        server.join()
    deep = os.path.join(folder, "deep/" * 5)
    os.makedirs(deep)
    os.chdir(deep)
    with socket.socket(socket.AF_UNIX) as here, socket.socket(socket.AF_UNIX) as there:
        here.bind("here")
        here.listen()
        there.connect("here")
        print(here.getsockname())  # Others are told that name.
        attempt("bind again", socket.socket(socket.AF_UNIX).bind, "here")
        print(os.listdir())
    attempt("connect", socket.socket(socket.AF_UNIX).connect, "nowhere")
    os.chdir("/")
