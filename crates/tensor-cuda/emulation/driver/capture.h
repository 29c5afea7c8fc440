// Stream capture and graphs.
#pragma once

#include "streams.h"

extern "C" {

CUresult cuStreamBeginCapture_v2(CUstream stream, CUstreamCaptureMode mode) {
    Call call{__func__};
    TRY(call.enter());
    if (!streams.has(stream)) return call.refuse(CUDA_ERROR_INVALID_HANDLE, "no such stream");
    if (stream->capture) return call.refuse(CUDA_ERROR_ILLEGAL_STATE, "the stream is being captured already");
    stream->capture = std::make_shared<Capture>(Capture{stream, mode, std::this_thread::get_id(), {}, {stream}});
    stream->tail.clear();
    stream->joined = true;
    captures.push_back(stream->capture);
    return CUDA_SUCCESS;
}

CUresult cuStreamEndCapture(CUstream stream, CUgraph* graph) {
    Call call{__func__};
    *graph = nullptr;
    TRY(call.enter());
    if (!streams.has(stream)) return call.refuse(CUDA_ERROR_INVALID_HANDLE, "no such stream");
    CapturePtr capture = stream->capture;
    if (!capture) return call.refuse(CUDA_ERROR_ILLEGAL_STATE, "the stream is not being captured");
    if (capture->origin != stream)
        return call.refuse(CUDA_ERROR_STREAM_CAPTURE_UNMATCHED, "the capture began on another stream");
    if (capture->thread != std::this_thread::get_id() && capture->mode != CU_STREAM_CAPTURE_MODE_RELAXED)
        return call.refuse(CUDA_ERROR_STREAM_CAPTURE_WRONG_THREAD, "the capture began on another thread");
    bool joined = true;
    for (CUstream other : capture->streams) {
        joined = joined && other->joined;
        other->capture = nullptr;
    }
    capture->ended = true;
    std::vector<Node> nodes = std::move(capture->nodes); // events keep the capture
    captures.erase(std::find(captures.begin(), captures.end(), capture));
    if (capture->invalid) return call.refuse(CUDA_ERROR_STREAM_CAPTURE_INVALIDATED, "the capture is invalid");
    if (!joined) return call.refuse(CUDA_ERROR_STREAM_CAPTURE_UNJOINED, "a stream was not joined");
    *graph = graphs.add(new CUgraph_st{stream->context, std::move(nodes)});
    return CUDA_SUCCESS;
}

// The stream's nodes of the moment, by their numbers from 1 on.
CUresult cuStreamGetCaptureInfo_v3(CUstream stream, CUstreamCaptureStatus* status, cuuint64_t* id, CUgraph* graph,
                                   const CUgraphNode** nodes, const CUgraphEdgeData** edges, size_t* count) {
    Call call{__func__};
    TRY(call.enter());
    if (!streams.has(stream)) return call.refuse(CUDA_ERROR_INVALID_HANDLE, "no such stream");
    Capture* capture = stream->capture.get();
    *status = !capture            ? CU_STREAM_CAPTURE_STATUS_NONE
              : capture->invalid ? CU_STREAM_CAPTURE_STATUS_INVALIDATED
                                 : CU_STREAM_CAPTURE_STATUS_ACTIVE;
    if (id || graph) return call.refuse(CUDA_ERROR_INVALID_VALUE, "the stand-in has no identifiers of captures");
    if (*status != CU_STREAM_CAPTURE_STATUS_ACTIVE) return CUDA_SUCCESS;
    if (!edges) return call.refuse(CUDA_ERROR_LOSSY_QUERY, "edges may have data");
    stream->told.clear();
    for (size_t node : stream->tail) stream->told.push_back(reinterpret_cast<CUgraphNode>(node + 1));
    *nodes = stream->told.data(), *count = stream->told.size();
    stream->edges.assign(*count, CUgraphEdgeData{});
    *edges = stream->edges.data();
    return CUDA_SUCCESS;
}

CUresult cuStreamUpdateCaptureDependencies_v2(CUstream stream, CUgraphNode* nodes, const CUgraphEdgeData* edges, size_t count,
                                              unsigned int flags) {
    Call call{__func__};
    TRY(call.enter());
    if (!streams.has(stream)) return call.refuse(CUDA_ERROR_INVALID_HANDLE, "no such stream");
    Capture* capture = stream->capture.get();
    if (!capture || capture->invalid) return call.refuse(CUDA_ERROR_ILLEGAL_STATE, "the stream is not being captured");
    if (flags != CU_STREAM_SET_CAPTURE_DEPENDENCIES || edges) return call.refuse(CUDA_ERROR_INVALID_VALUE, "not so here");
    std::set<size_t> tail;
    for (size_t k = 0; k < count; ++k) {
        size_t number = reinterpret_cast<size_t>(nodes[k]);
        if (number == 0 || number > capture->nodes.size()) return call.refuse(CUDA_ERROR_INVALID_VALUE, "no such node");
        tail.insert(number - 1);
    }
    stream->tail = tail;
    return CUDA_SUCCESS;
}

// A graph's nodes by their numbers from 1 on.
CUresult cuGraphGetNodes(CUgraph graph, CUgraphNode* nodes, size_t* count) {
    Call call{__func__};
    if (!graphs.has(graph)) return call.refuse(CUDA_ERROR_INVALID_VALUE, "no such graph");
    // As a driver on an H100 did.
    if (nodes && *count == 0) return call.refuse(CUDA_ERROR_INVALID_VALUE, "a list without room");
    size_t all = graph->nodes.size(), room = nodes ? *count : 0;
    for (size_t k = 0; k < all && k < room; ++k) nodes[k] = reinterpret_cast<CUgraphNode>(k + 1);
    *count = all;
    return CUDA_SUCCESS;
}

CUresult cuGraphGetEdges_v2(CUgraph graph, CUgraphNode* from, CUgraphNode* to, CUgraphEdgeData* data, size_t* count) {
    Call call{__func__};
    if (!graphs.has(graph)) return call.refuse(CUDA_ERROR_INVALID_VALUE, "no such graph");
    if (from && *count == 0) return call.refuse(CUDA_ERROR_INVALID_VALUE, "lists without room");
    if (from && !data) return call.refuse(CUDA_ERROR_LOSSY_QUERY, "edges may have data");
    size_t all = 0, room = from ? *count : 0;
    for (size_t k = 0; k < graph->nodes.size(); ++k) {
        for (size_t before : graph->nodes[k].after) {
            if (all < room) {
                from[all] = reinterpret_cast<CUgraphNode>(before + 1);
                to[all] = reinterpret_cast<CUgraphNode>(k + 1);
                data[all] = CUgraphEdgeData{};
            }
            ++all;
        }
    }
    *count = all;
    return CUDA_SUCCESS;
}

CUresult cuGraphNodeGetType(CUgraphNode, CUgraphNodeType* type) {
    Call call{__func__};
    *type = CU_GRAPH_NODE_TYPE_KERNEL; // as far as the stand-in cares
    return CUDA_SUCCESS;
}

constexpr int GREATEST_PRIORITY = -5;

CUresult cuCtxGetStreamPriorityRange(int* least, int* greatest) {
    Call call{__func__};
    TRY(call.enter());
    *least = 0, *greatest = GREATEST_PRIORITY;
    return CUDA_SUCCESS;
}

CUresult cuGraphKernelNodeSetAttribute(CUgraphNode, CUlaunchAttributeID attribute, const CUlaunchAttributeValue* value) {
    Call call{__func__};
    if (setting("FAKE_PRIORITIES", 1) == 0) return CUDA_ERROR_INVALID_VALUE;
    if (attribute != CU_LAUNCH_ATTRIBUTE_PRIORITY || value->priority > 0 || value->priority < GREATEST_PRIORITY)
        return call.refuse(CUDA_ERROR_INVALID_VALUE, "no such priority");
    return CUDA_SUCCESS;
}

CUresult cuGraphInstantiateWithFlags(CUgraphExec* executable, CUgraph graph, unsigned long long flags) {
    Call call{__func__};
    TRY(call.enter());
    if (!graphs.has(graph) || flags & ~CUDA_GRAPH_INSTANTIATE_FLAG_USE_NODE_PRIORITY)
        return call.refuse(CUDA_ERROR_INVALID_VALUE, "no such graph, or other flags");
    wait_for_all(call);
    *executable = executables.add(new CUgraphExec_st{graph->context, std::make_shared<const std::vector<Node>>(graph->nodes)});
    return CUDA_SUCCESS;
}

CUresult cuGraphDestroy(CUgraph graph) {
    Call call{__func__};
    if (!graphs.has(graph)) return call.refuse(CUDA_ERROR_INVALID_VALUE, "no such graph");
    graphs.live.erase(graph);
    graph->nodes.clear();
    return CUDA_SUCCESS;
}

// Does the nodes, each after those that it comes after, else in any order.
static CUresult carry_out(const std::vector<Node>& nodes, unsigned int seed) {
    std::vector<size_t> open, waits(nodes.size());
    std::vector<std::vector<size_t>> then(nodes.size());
    for (size_t k = 0; k < nodes.size(); ++k) {
        waits[k] = nodes[k].after.size();
        for (size_t before : nodes[k].after) then[before].push_back(k);
        if (waits[k] == 0) open.push_back(k);
    }
    while (!open.empty()) {
        std::swap(open[static_cast<size_t>(rand_r(&seed)) % open.size()], open.back());
        size_t k = open.back();
        open.pop_back();
        TRY(nodes[k].work());
        for (size_t next : then[k])
            if (--waits[next] == 0) open.push_back(next);
    }
    return CUDA_SUCCESS;
}

static CUresult ask_graph(Call& call, CUgraphExec executable, CUstream stream, bool run) {
    TRY(call.enter());
    if (!executables.has(executable)) return call.refuse(CUDA_ERROR_INVALID_VALUE, "no such graph");
    if (!streams.has(stream)) return call.refuse(CUDA_ERROR_INVALID_HANDLE, "no such stream");
    if (stream->capture) {
        stream->capture->invalid = true;
        return call.refuse(CUDA_ERROR_STREAM_CAPTURE_UNSUPPORTED, "a graph in a capture");
    }
    static unsigned int seed = 1;
    Work work = [nodes = executable->nodes, state = ++seed] { return carry_out(*nodes, state); };
    std::vector<DonePtr> after;
    if (executable->last) after.push_back(executable->last);
    TRY(ask(call, stream, "a graph", run ? work : Work(), after));
    executable->last = stream->last;
    return CUDA_SUCCESS;
}

CUresult cuGraphUpload(CUgraphExec executable, CUstream stream) {
    Call call{__func__};
    return ask_graph(call, executable, stream, false);
}

CUresult cuGraphLaunch(CUgraphExec executable, CUstream stream) {
    Call call{__func__};
    return ask_graph(call, executable, stream, true);
}

CUresult cuGraphExecDestroy(CUgraphExec executable) {
    Call call{__func__};
    if (!executables.has(executable)) return call.refuse(CUDA_ERROR_INVALID_VALUE, "no such graph");
    executables.live.erase(executable);
    executable->nodes.reset();
    return CUDA_SUCCESS;
}

} // extern "C"
