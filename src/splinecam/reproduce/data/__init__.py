"""The data of the experiments: found on this machine, checked, and never downloaded."""

from splinecam.reproduce.data.distance import signed_distance, signed_distance_image
from splinecam.reproduce.data.images import Images, load_images
from splinecam.reproduce.data.meshes import Mesh, load_mesh
from splinecam.reproduce.data.photos import Photo, load_photo

__all__ = [
    "Images",
    "Mesh",
    "Photo",
    "load_images",
    "load_mesh",
    "load_photo",
    "signed_distance",
    "signed_distance_image",
]
