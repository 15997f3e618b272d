// A parameter as a picture: which part of it, of its compute copy, its gradient and its optimizer states each rank of
// the mesh holds, beside the lines of the Program that touch it.
#pragma once
#include "program/program.h"

// Whether `name` is a parameter of the graph; if not, an error that names the nearest ones.
int tensor_picture_find(const Graph *graph, const char *name, int *parameter, Error *error);
// SVG. programs: of each pipeline rank. At most the first 32 ranks are drawn, and the picture says so.
void tensor_picture_svg(Program *const *programs, int parameter, FILE *out);
