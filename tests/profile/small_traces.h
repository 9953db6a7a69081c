#pragma once

namespace spillway::profile {

/// What stands before START is no part of the step. x2 is a copy of the weights x1; the results of
/// the view x5 share the storage of x4; relu_ writes in place; x9 is a gradient that survives.
inline constexpr const char* kDtrLog =
    R"({"INSTRUCTION":"CONSTANT","NAME":"x0"}
{"INSTRUCTION":"MEMORY","MEMORY":"99999999","NAME":"x0"}
{"ANNOTATION":"START","INSTRUCTION":"ANNOTATE"}
{"INSTRUCTION":"CONSTANT","NAME":"x1"}
{"INSTRUCTION":"MEMORY","MEMORY":"4194304","NAME":"x1"}
{"DST":"x2","INSTRUCTION":"COPY","SRC":"x1"}
{"INSTRUCTION":"RELEASE","NAME":"x1"}
{"INSTRUCTION":"CONSTANT","NAME":"x3"}
{"INSTRUCTION":"MEMORY","MEMORY":"2097152","NAME":"x3"}
{"ARGS":["x3","x2"],"INSTRUCTION":"CALL","NAME":"conv","RESULT":["x4","x10"],"TIME":"1000"}
{"INSTRUCTION":"MEMORY","MEMORY":"6291456","NAME":"x4"}
{"ALIAS":"-1","INSTRUCTION":"ALIAS","NAME":"x4"}
{"INSTRUCTION":"MEMORY","MEMORY":"0","NAME":"x10"}
{"ALIAS":"-1","INSTRUCTION":"ALIAS","NAME":"x10"}
{"ARGS":["x4"],"INSTRUCTION":"CALL","NAME":"view","RESULT":["x5"],"TIME":"20"}
{"INSTRUCTION":"MEMORY","MEMORY":"6291456","NAME":"x5"}
{"ALIAS":"0","INSTRUCTION":"ALIAS","NAME":"x5"}
{"INSTRUCTION":"RELEASE","NAME":"x4"}
{"ARGS":["x5"],"INSTRUCTION":"MUTATE","MUTATE":[0],"NAME":"relu_","TIME":"300"}
{"INSTRUCTION":"CONSTANT","NAME":"x6"}
{"INSTRUCTION":"MEMORY","MEMORY":"8","NAME":"x6"}
{"ARGS":["x6"],"INSTRUCTION":"CALL","NAME":"add","RESULT":["x7"],"TIME":"4"}
{"INSTRUCTION":"MEMORY","MEMORY":"8","NAME":"x7"}
{"ALIAS":"-1","INSTRUCTION":"ALIAS","NAME":"x7"}
{"ANNOTATION":"BACKWARD","INSTRUCTION":"ANNOTATE"}
{"ARGS":["x5","x3"],"INSTRUCTION":"CALL","NAME":"conv_backward","RESULT":["x9"],"TIME":"5000"}
{"INSTRUCTION":"MEMORY","MEMORY":"4194304","NAME":"x9"}
{"ALIAS":"-1","INSTRUCTION":"ALIAS","NAME":"x9"}
{"DST":"x7","INSTRUCTION":"COPY_FROM","SRC":"x9"}
{"INSTRUCTION":"RELEASE","NAME":"x9"}
{"INSTRUCTION":"RELEASE","NAME":"x5"}
{"INSTRUCTION":"RELEASE","NAME":"x3"}
)";

/// conv, relu in place, a second conv beside it, their sum, a view and a linear layer.
inline constexpr const char* kPipedreamGraph =
    "node10 -- Linear(4, 2) -- forward_compute_time=1.5, backward_compute_time=2.5, "
    "activation_size=4194304.0, parameter_size=2097152.000\n"
    "node1 -- Input -- forward_compute_time=9.0, backward_compute_time=0.000, "
    "activation_size=9999999.0, parameter_size=0.000\n"
    "node2 -- Conv2d(3, 4) -- forward_compute_time=1.000, backward_compute_time=2.000, "
    "activation_size=6291456.000, parameter_size=4194304.000\n"
    "node3 -- ReLU(inplace) -- forward_compute_time=0.250, backward_compute_time=0.500, "
    "activation_size=6291456.000, parameter_size=0.000\n"
    "node4 -- Conv2d(4, 4) -- forward_compute_time=3.000, backward_compute_time=4.000, "
    "activation_size=6291456.000, parameter_size=0.000\n"
    "node5 -- Add -- forward_compute_time=0.125, backward_compute_time=0.000, "
    "activation_size=6291456.000, parameter_size=0.000\n"
    "node6 -- View(-1) -- forward_compute_time=0.000, backward_compute_time=0.000, "
    "activation_size=6291456.000, parameter_size=0.000\n"
    "\tnode6 -- node10\n"
    "\tnode1 -- node2\n"
    "\tnode2 -- node3\n"
    "\tnode3 -- node4\n"
    "\tnode4 -- node5\n"
    "\tnode3 -- node5\n"
    "\tnode5 -- node6\n";

/// A mask, an embedding and two layers, at degrees 1 and 2.
inline constexpr const char* kPiperLayers = R"({"maxDevices": 2, "nodes": [
{"id": 7, "name": "mask", "TMPCs": {
 "1": [{"id": "vanilla", "timePerSample": 0.0, "parameterSize": 0.0, "memoryUsageA": 2097152.0,
        "memoryUsageB": 0.0, "syncTimeFw": {}, "syncTimeBw": {"1": 0.0}}],
 "2": [{"id": "vanilla", "timePerSample": 0.0, "parameterSize": 0.0, "memoryUsageA": 2097152.0,
        "memoryUsageB": 0.0}]}},
{"id": 1, "name": "Layer", "TMPCs": {
 "1": [{"id": "vanilla", "timePerSample": 0.3, "parameterSize": 8388608.0,
        "memoryUsageA": 20971520.0, "memoryUsageB": 16777216.0},
       {"id": "activation recomp", "timePerSample": 0.41, "parameterSize": 8388608.0,
        "memoryUsageA": 2097152.0, "memoryUsageB": 35651584.0}],
 "2": [{"id": "vanilla", "timePerSample": 0.2, "parameterSize": 4194304.0,
        "memoryUsageA": 10485760.0, "memoryUsageB": 8388608.0}]}},
{"id": 2, "name": "Layer", "TMPCs": {
 "1": [{"id": "vanilla", "timePerSample": 0.3, "parameterSize": 8388608.0,
        "memoryUsageA": 23068672.0, "memoryUsageB": 16777216.0},
       {"id": "activation recomp", "timePerSample": 0.4, "parameterSize": 8388608.0,
        "memoryUsageA": 6291456.0, "memoryUsageB": 35651584.0}],
 "2": [{"id": "vanilla", "timePerSample": 0.2, "parameterSize": 4194304.0,
        "memoryUsageA": 10485760.0, "memoryUsageB": 8388608.0}]}}],
"edges": [{"sourceId": 7, "destId": 1, "communicationCost": 2097152.0},
 {"sourceId": 7, "destId": 2, "communicationCost": 2097152.0},
 {"sourceId": 1, "destId": 2, "communicationCost": 6291456.0}]})";

}  // namespace spillway::profile
