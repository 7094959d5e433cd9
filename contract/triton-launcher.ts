import { closedHeader, modelControlHeader, modelControlKeyVariable } from "./triton-flags.ts";

/**
 * Python program that executes tritonserver with the key of the model control API. Triton reads the key only from its command line, which
 * every local user can read. The program therefore passes the arguments with the key in the environment, which only the same user can
 * read, stops the new process before its first instruction (ptrace) and lets `argv` point there. The command line that the kernel shows
 * keeps the arguments without the key, which close the API, so that the API is closed if a key cannot be passed.
 */
export const tritonLauncher = `import ctypes, os, struct, sys

arguments, pid, libc = sys.argv[1:], os.getpid(), ctypes.CDLL(None)
libc.ptrace.argtypes = libc.prctl.argtypes = [ctypes.c_long] * 4
key = os.environ.pop("${modelControlKeyVariable}")
closed = "${closedHeader}=$${modelControlKeyVariable}"
secrets = {a: a.replace(closed, "${modelControlHeader}=" + key) for a in arguments if closed in a}
for index, argument in enumerate(secrets.values()):
    os.environ["TRITON_ARGUMENT_%d" % index] = argument


def pass_secrets():
    def strings(address):
        while True:
            memory.seek(address)
            pointer = struct.unpack("Q", memory.read(8))[0]
            if not pointer:
                return
            memory.seek(pointer)
            yield address, pointer, memory.read(4096).split(b"\\0")[0].decode()
            address += 8

    with open("/proc/%d/stat" % pid) as stat, open("/proc/%d/mem" % pid, "r+b", 0) as memory:
        # start of the stack: argc, argv, 0, environment, 0
        stack = int(stat.read().rsplit(")", 1)[1].split()[25])
        argv = list(strings(stack + 8))
        for _, pointer, text in strings(stack + 8 * len(argv) + 16):
            name, _, value = text.partition("=")
            for slot, _, argument in argv if name.startswith("TRITON_ARGUMENT_") else ():
                if secrets.get(argument) == value:
                    memory.seek(slot)
                    memory.write(struct.pack("Q", pointer + len(name) + 1))


def trace(allowed, seized):
    os.read(allowed, 1)
    if libc.ptrace(0x4206, pid, 0, 0x10):  # PTRACE_SEIZE, PTRACE_O_TRACEEXEC
        os._exit(1)
    os.write(seized, b"1")
    while True:
        status = os.waitpid(pid, 0x40000000)[1]  # __WALL
        if os.WIFEXITED(status) or os.WIFSIGNALED(status):
            return
        # the last of several programs, because a script starts another one
        if status >> 16 == 4 and os.path.basename(os.readlink("/proc/%d/exe" % pid)) == os.path.basename(arguments[0]):
            return pass_secrets()
        libc.ptrace(7, pid, 0, 0 if status >> 16 else os.WSTOPSIG(status))  # PTRACE_CONT


allowed, allow = os.pipe()
seized, seize = os.pipe()
if os.fork() == 0:
    if os.fork() == 0:
        os.close(allow), os.close(seized)
        try:
            trace(allowed, seize)
        except BaseException:
            os.kill(pid, 9)
    os._exit(0)
os.close(seize)
os.wait()
libc.prctl(0x59616D61, -1, 0, 0)  # PR_SET_PTRACER, PR_SET_PTRACER_ANY: the helper is no parent
os.write(allow, b"1")
if not os.read(seized, 1):
    sys.exit("the key of Triton's model control cannot be hidden, because ptrace is not allowed in this container: set modelControl to none")
os.execvp(arguments[0], arguments)
`;
