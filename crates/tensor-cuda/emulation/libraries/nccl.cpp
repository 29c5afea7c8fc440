// A stand-in for NCCL between threads and processes of one machine: letters are files of a folder in memory.
//
// A communicator does not block: a call is under way for some questions, and what is called meanwhile is wrong. Kernels wait for those
// of other ranks, in the order in which each rank asked for them, or replays them, and end when the communicator is aborted. Two ranks
// on one GPU are refused. A communicator is given back when no recording holds its operations.
//
// The environment: FAKE_LETTERS, where the folder is (/dev/shm).
#include "library.h"
#include <atomic>
#include <fstream>
#include <iterator>
#include <map>
#include <memory>
#include <sys/stat.h>
#include <thread>
#include <unistd.h>
#include <utility>

#if REAL_HEADERS
#include <nccl.h>
#else
typedef enum {
    ncclSuccess = 0,
    ncclUnhandledCudaError = 1,
    ncclInvalidArgument = 4,
    ncclInvalidUsage = 5,
    ncclInProgress = 7,
} ncclResult_t;
typedef enum { ncclFloat32 = 7 } ncclDataType_t;
typedef enum { ncclSum = 0 } ncclRedOp_t;
typedef struct ncclComm* ncclComm_t;
typedef struct { char internal[128]; } ncclUniqueId;
// As in 2.28. Newer ones are longer.
typedef struct {
    size_t size;
    unsigned int magic, version;
    int blocking, cgaClusterSize, minCTAs, maxCTAs;
    const char* netName;
    int splitShare, trafficClass;
    const char* commName;
    int collnetEnable, CTAPolicy, shrinkShare, nvlsCTAs, nChannelsPerNetPeer, nvlinkCentricSched;
} ncclConfig_t;
typedef CUstream cudaStream_t;
#endif

static Objects objects{"NCCL", {}, {}};

// What operations under way and recordings share with their communicator.
struct Group {
    std::string folder;
    int rank, world;
    std::atomic<bool> aborted{false};

    std::string path(const std::string& name) const { return folder + "/" + name; }

    void post(const std::string& name, const std::string& text) const {
        std::ofstream(path("draft-" + name), std::ios::binary) << text;
        rename(path("draft-" + name).c_str(), path(name).c_str());
    }

    // Waits for a letter, unless the group is aborted.
    bool wait(const std::string& name, std::string* text) const {
        while (access(path(name).c_str(), R_OK)) {
            if (aborted) return false;
            usleep(100);
        }
        std::ifstream file(path(name), std::ios::binary);
        *text = {std::istreambuf_iterator<char>(file), {}};
        return true;
    }
};

// An operation that was asked for. Its name is the same on the ranks that it concerns.
struct Operation {
    enum Kind { ALL_REDUCE, BROADCAST, ALL_GATHER, SEND, RECEIVE } kind;
    const char* from;
    char* to;
    size_t bytes; // that each rank sends
    int peer;
    std::string name;

    std::string letter(int rank) const { return name + "." + std::to_string(rank); }
};

struct ncclComm {
    CUcontext context;
    std::shared_ptr<Group> group;
    std::thread job;
    std::atomic<int> state{ncclInProgress};
    int questions = 0; // that are answered by "under way"
    bool finalized = false;
    std::string error;
    std::map<std::string, int> asked; // how often
};

// Operations of this thread that start together, if any are to.
static thread_local int depth;
struct Pending {
    ncclComm_t comm;
    CUstream stream;
    std::vector<Operation> operations;
};
static thread_local std::vector<Pending> pending;

#define WRONG(code, why) return refuse(__func__, code, why)

static ncclResult_t check(const char* name, ncclComm_t comm) {
    auto wrong = [&](const char* why) { return refuse(name, ncclInvalidArgument, why); };
    if (!objects.has(comm)) return wrong("no such communicator");
    if (comm->context != fake_context()) return wrong("another context is current");
    if (comm->state == ncclInProgress || comm->questions) return wrong("the call before is under way");
    if (comm->finalized) return wrong("after the end");
    return static_cast<ncclResult_t>(comm->state.load());
}

// What ranks say of an operation to each other, before its numbers.
static std::string heading(const Operation& operation) {
    std::string text = std::to_string(operation.kind) + " " + std::to_string(operation.bytes);
    return text.append(32 - text.size(), ' ');
}

// Takes what another rank sent. False if the group was aborted.
static bool take(const Group& group, const Operation& operation, const std::string& letter, bool alike, std::string* numbers) {
    if (!group.wait(letter, numbers)) return false;
    std::string expected = heading(operation);
    if (alike ? numbers->compare(0, 32, expected) : numbers->size() != 32 + operation.bytes)
        refuse("a kernel", ncclInvalidUsage, "ranks differ: '" + numbers->substr(0, 32) + "', '" + expected + "'");
    numbers->erase(0, 32);
    numbers->resize(operation.bytes);
    return true;
}

// A kernel: sends first, so that ranks that exchange something do not wait for each other. Names of operations that are replayed
// differ by the replay.
static void carry_out(const Group& group, std::vector<Operation> operations, int replay) {
    for (Operation& operation : operations) {
        bool mine = operation.kind == Operation::BROADCAST && operation.peer == group.rank;
        bool collective = operation.kind == Operation::ALL_REDUCE || operation.kind == Operation::ALL_GATHER;
        auto own = [&](int state) { return operation.letter(operation.kind == Operation::SEND ? operation.peer : group.rank) + "-" + std::to_string(state); };
        if (operation.kind == Operation::RECEIVE || (!mine && !collective && operation.kind != Operation::SEND)) continue;
        group.post(own(replay), heading(operation) + std::string(operation.from, operation.bytes));
        // Who replays it once more has done with the time before the last.
        if (replay > 1) unlink(group.path(own(replay - 2)).c_str());
    }
    for (Operation& operation : operations) {
        std::string numbers, turn = "-" + std::to_string(replay);
        switch (operation.kind) {
        case Operation::SEND: break;
        case Operation::RECEIVE:
            if (!take(group, operation, operation.letter(group.rank) + turn, false, &numbers)) return;
            memcpy(operation.to, numbers.data(), operation.bytes);
            break;
        case Operation::BROADCAST:
            if (operation.peer == group.rank) memmove(operation.to, operation.from, operation.bytes);
            else if (!take(group, operation, operation.letter(operation.peer) + turn, true, &numbers)) return;
            else memcpy(operation.to, numbers.data(), operation.bytes);
            break;
        case Operation::ALL_GATHER:
            for (int rank = 0; rank < group.world; ++rank) {
                if (!take(group, operation, operation.letter(rank) + turn, true, &numbers)) return;
                memcpy(operation.to + size_t(rank) * operation.bytes, numbers.data(), operation.bytes);
            }
            break;
        case Operation::ALL_REDUCE: {
            // From the last rank to the first: an order that is nobody's by chance.
            std::string sum;
            if (!take(group, operation, operation.letter(group.world - 1) + turn, true, &sum)) return;
            for (int rank = group.world - 1; rank-- > 0;) {
                if (!take(group, operation, operation.letter(rank) + turn, true, &numbers)) return;
                for (size_t k = 0; k < operation.bytes / 4; ++k)
                    set_number(Format::F32, &sum[0], k, number(Format::F32, sum.data(), k) + number(Format::F32, numbers.data(), k));
            }
            memcpy(operation.to, sum.data(), sum.size());
        }
        }
    }
}

static ncclResult_t start(const char* name, const Pending& what) {
    std::vector<Place> places;
    for (const Operation& operation : what.operations) {
        size_t whole = operation.bytes * (operation.kind == Operation::ALL_GATHER ? size_t(what.comm->group->world) : 1);
        if (operation.from) places.push_back({address(operation.from), operation.bytes});
        if (operation.to) places.push_back({address(operation.to), whole});
    }
    // A replay runs the same work again.
    auto replays = std::make_shared<std::atomic<int>>(0);
    auto work = [group = what.comm->group, operations = what.operations, replays] { carry_out(*group, operations, (*replays)++); };
    if (fake_work(name, what.stream, places, work) != CUDA_SUCCESS) return ncclUnhandledCudaError;
    what.comm->questions = 2;
    return ncclInProgress;
}

static ncclResult_t ask(const char* name, ncclComm_t comm, CUstream stream, int type, Operation operation) {
    if (ncclResult_t status = check(name, comm)) return status;
    if (type != ncclFloat32 || !stream || operation.peer < 0 || operation.peer >= comm->group->world)
        return refuse(name, ncclInvalidArgument, "a format, stream or rank");
    bool paired = operation.kind == Operation::SEND || operation.kind == Operation::RECEIVE;
    if (paired && operation.peer == comm->group->rank)
        return refuse(name, ncclInvalidArgument, "from a rank to itself");
    int from = operation.kind == Operation::SEND ? comm->group->rank : operation.peer;
    std::string kind = paired ? (operation.kind == Operation::SEND ? "send-" : "take-") + std::to_string(operation.peer) : "all";
    std::string number = std::to_string(comm->asked[kind]++);
    operation.name = paired ? "pair-" + std::to_string(from) + "-" + number : "all-" + number;
    if (!depth) return start(name, {comm, stream, {operation}});
    for (Pending& other : pending)
        if (other.comm == comm && other.stream == stream) return other.operations.push_back(operation), ncclSuccess;
    pending.push_back({comm, stream, {operation}});
    return ncclSuccess;
}

// What a thread of the communicator does until it is done or aborted.
static void begin(ncclComm_t comm, std::function<const char*()> job) {
    if (comm->job.joinable()) comm->job.join();
    comm->state = ncclInProgress;
    comm->job = std::thread([comm, job] {
        const char* error = job();
        if (error) comm->error = error;
        comm->state = error ? ncclInvalidUsage : ncclSuccess;
    });
}

static void give_back(ncclComm_t comm) {
    if (comm->job.joinable()) comm->job.join();
    // Recordings hold their operations, and these the group.
    while (comm->group.use_count() > 1) usleep(1000);
    objects.remove(comm);
    const Group& group = *comm->group;
    if (group.rank) return;
    std::string text;
    for (int other = 0; other < group.world && !group.aborted; ++other) group.wait("read." + std::to_string(other), &text);
    if (system(("rm -rf '" + group.folder + "'").c_str())) perror("NCCL");
}

extern "C" {

ncclResult_t ncclGetVersion(int* version) { return *version = 22809, ncclSuccess; }
const char* ncclGetErrorString(ncclResult_t) { return "what NCCL says"; }
const char* ncclGetLastError(ncclComm_t comm) { return objects.has(comm) ? comm->error.c_str() : ""; }

ncclResult_t ncclGetUniqueId(ncclUniqueId* id) {
    memset(id, 0, sizeof *id);
    std::ifstream("/dev/urandom", std::ios::binary).read(id->internal, 8);
    return ncclSuccess;
}

ncclResult_t ncclCommInitRankConfig(ncclComm_t* to, int world, ncclUniqueId id, int rank, ncclConfig_t* config) {
    *to = nullptr;
    if (!fake_context()) WRONG(ncclUnhandledCudaError, "no context is current");
    if (world < 1 || rank < 0 || rank >= world) WRONG(ncclInvalidArgument, "no such rank");
    if (!config || config->magic != 0xcafebeef || config->size < 80 || config->version < 22800) WRONG(ncclInvalidArgument, "settings");
    if (config->blocking != 0) WRONG(ncclInvalidArgument, "a communicator that blocks");
    const char* set = getenv("FAKE_LETTERS");
    std::string name = set ? set : "/dev/shm";
    name += "/nccl-";
    for (int k = 0; k < 8; ++k) name += "0123456789abcdef"[id.internal[k] & 15], name += "0123456789abcdef"[id.internal[k] >> 4 & 15];
    auto group = std::make_shared<Group>();
    group->folder = name, group->rank = rank, group->world = world;
    mkdir(name.c_str(), 0700);
    ncclComm_t comm = *to = objects.add(new ncclComm{fake_context(), group});
    int device = fake_device(comm->context);
    begin(comm, [=, group = group.get()]() -> const char* {
        group->post("here." + std::to_string(rank), std::to_string(world) + " " + std::to_string(device));
        std::set<std::string> all;
        std::string text;
        for (int other = 0; other < world; ++other) {
            if (!group->wait("here." + std::to_string(other), &text)) return "aborted";
            if (text.compare(0, text.find(' '), std::to_string(world))) return "ranks know of different numbers of ranks";
            all.insert(text);
        }
        if (all.size() == size_t(world)) return nullptr;
        // Rank 0 is told last: it takes the folder away, which the others have read by then.
        group->post("read." + std::to_string(rank), "");
        for (int other = 0; rank == 0 && other < world; ++other)
            if (!group->wait("read." + std::to_string(other), &text)) return "aborted";
        return "Duplicate GPU detected";
    });
    return ncclInProgress;
}

ncclResult_t ncclCommGetAsyncError(ncclComm_t comm, ncclResult_t* state) {
    if (!objects.has(comm)) WRONG(ncclInvalidArgument, "no such communicator");
    if (comm->questions) --comm->questions, *state = ncclInProgress;
    else *state = static_cast<ncclResult_t>(comm->state.load());
    return ncclSuccess;
}

ncclResult_t ncclGroupStart() { return ++depth, ncclSuccess; }

ncclResult_t ncclGroupEnd() {
    if (!depth) WRONG(ncclInvalidUsage, "no group was begun");
    if (--depth) return ncclSuccess;
    ncclResult_t result = ncclSuccess;
    for (const Pending& each : std::exchange(pending, {})) {
        ncclResult_t status = start(__func__, each);
        if (result == ncclSuccess || result == ncclInProgress) result = status;
    }
    return result;
}

ncclResult_t ncclAllReduce(const void* from, void* to, size_t count, ncclDataType_t type, ncclRedOp_t op, ncclComm_t comm,
                           cudaStream_t stream) {
    if (op != ncclSum) WRONG(ncclInvalidArgument, "no sum");
    return ask(__func__, comm, stream, type, {Operation::ALL_REDUCE, static_cast<const char*>(from), static_cast<char*>(to), 4 * count, 0, ""});
}

ncclResult_t ncclBroadcast(const void* from, void* to, size_t count, ncclDataType_t type, int root, ncclComm_t comm,
                           cudaStream_t stream) {
    return ask(__func__, comm, stream, type, {Operation::BROADCAST, static_cast<const char*>(from), static_cast<char*>(to), 4 * count, root, ""});
}

ncclResult_t ncclAllGather(const void* from, void* to, size_t count, ncclDataType_t type, ncclComm_t comm, cudaStream_t stream) {
    return ask(__func__, comm, stream, type, {Operation::ALL_GATHER, static_cast<const char*>(from), static_cast<char*>(to), 4 * count, 0, ""});
}

ncclResult_t ncclSend(const void* from, size_t count, ncclDataType_t type, int peer, ncclComm_t comm, cudaStream_t stream) {
    return ask(__func__, comm, stream, type, {Operation::SEND, static_cast<const char*>(from), nullptr, 4 * count, peer, ""});
}

ncclResult_t ncclRecv(void* to, size_t count, ncclDataType_t type, int peer, ncclComm_t comm, cudaStream_t stream) {
    return ask(__func__, comm, stream, type, {Operation::RECEIVE, nullptr, static_cast<char*>(to), 4 * count, peer, ""});
}

ncclResult_t ncclCommFinalize(ncclComm_t comm) {
    if (ncclResult_t status = check(__func__, comm)) return status;
    comm->finalized = true;
    begin(comm, [group = comm->group.get()]() -> const char* {
        group->post("gone." + std::to_string(group->rank), "");
        std::string text;
        for (int other = 0; other < group->world; ++other)
            if (!group->wait("gone." + std::to_string(other), &text)) return "aborted";
        group->post("read." + std::to_string(group->rank), "");
        return nullptr;
    });
    return ncclInProgress;
}

ncclResult_t ncclCommDestroy(ncclComm_t comm) {
    if (!objects.has(comm)) WRONG(ncclInvalidArgument, "no such communicator");
    if (!comm->finalized || comm->state != ncclSuccess) WRONG(ncclInvalidUsage, "before it was finalized");
    return give_back(comm), ncclSuccess;
}

ncclResult_t ncclCommAbort(ncclComm_t comm) {
    if (!objects.has(comm)) WRONG(ncclInvalidArgument, "no such communicator");
    comm->group->aborted = true;
    return give_back(comm), ncclSuccess;
}

} // extern "C"
