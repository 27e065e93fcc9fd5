// The entry of the bundle for surfaces.

import { enter } from "../entry";
import { SolidApp } from "./app";

export default enter(SolidApp.start);
