"""The paper's tables and figures as recipes, over a store of finished cells that is never run twice.

cells -> plan -> run directories -> records in experiments/results -> tables, figures, claims, docs
"""
